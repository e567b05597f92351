"""Byte-level BPE: trained here, kept in the form of a Hugging Face ``tokenizer.json``."""

from __future__ import annotations

import heapq
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from coldsnap.artifact.errors import ColdSnapError

END_OF_TEXT = "<|endoftext|>"
_MAX_FILE = 64 << 20
_MAX_CACHED = 1 << 16
# GPT-2's splitting, with the letters and digits that `re` knows.
_PATTERN = re.compile(r"'(?:[sdmt]|ll|ve|re)| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")

Pair = tuple[str, str]


def _byte_letters() -> dict[int, str]:
    """GPT-2's printable letter for every byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (byte for byte in range(256) if byte not in printable)
    return {
        **{byte: chr(byte) for byte in printable},
        **{byte: chr(256 + n) for n, byte in enumerate(others)},
    }


_LETTERS = _byte_letters()
_BYTES = {letter: byte for byte, letter in _LETTERS.items()}


class Tokenizer:
    """Text to token ids and back; every byte string has an encoding."""

    def __init__(self, vocab: Mapping[str, int], merges: Iterable[Pair]) -> None:
        self.vocab = dict(vocab)
        self.merges = list(merges)
        self._ranks = {pair: rank for rank, pair in enumerate(self.merges)}
        self._bytes = [b""] * (max(self.vocab.values()) + 1)
        for text, token in self.vocab.items():
            if text != END_OF_TEXT:
                self._bytes[token] = bytes(_BYTES[letter] for letter in text)
        self._word = lru_cache(_MAX_CACHED)(self._encode_word)

    @property
    def size(self) -> int:
        return len(self._bytes)

    @property
    def eos(self) -> int:
        return self.vocab[END_OF_TEXT]

    def encode(self, text: str) -> list[int]:
        tokens: list[int] = []
        for word in _PATTERN.findall(text):
            tokens.extend(self._word(word))
        return tokens

    def bytes_of(self, token: int) -> bytes:
        """Empty for the end of text."""
        return self._bytes[token]

    def decode(self, tokens: Iterable[int]) -> str:
        """Invalid UTF-8 reads as U+FFFD."""
        return b"".join(self._bytes[token] for token in tokens).decode("utf-8", "replace")

    def name(self, token: int) -> str:
        r"""The token alone as text; ``bytes:\xe2`` where it is no text by itself."""
        data = self._bytes[token]
        if token == self.eos:
            return END_OF_TEXT
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)

    def save(self, path: Path) -> None:
        value = {
            "version": "1.0",
            "added_tokens": [{"id": self.eos, "content": END_OF_TEXT, "special": True}],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
            "decoder": {"type": "ByteLevel"},
            "model": {
                "type": "BPE",
                "vocab": self.vocab,
                "merges": [list(pair) for pair in self.merges],
            },
        }
        path.write_text(json.dumps(value, ensure_ascii=False), "utf-8")

    def _encode_word(self, word: str) -> tuple[int, ...]:
        parts = [_LETTERS[byte] for byte in word.encode("utf-8", "surrogatepass")]
        while len(parts) > 1:
            pairs = pairwise(parts)
            best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            parts = _merged(parts, best)
        return tuple(self.vocab[part] for part in parts)


def load_tokenizer(path: Path) -> Tokenizer:
    """Read a ``tokenizer.json``.

    Raises:
        ColdSnapError: ``model.missing``, ``model.invalid``.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE)
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise ColdSnapError("model.missing", message) from error
    try:
        return _from_json(json.loads(data))
    except (ValueError, KeyError, TypeError) as error:
        raise ColdSnapError("model.invalid", f"{path} is no tokenizer: {error}") from error


def _from_json(value: dict[str, Any]) -> Tokenizer:
    vocab = {str(text): int(token) for text, token in value["model"]["vocab"].items()}
    merges = [(str(left), str(right)) for left, right in value["model"]["merges"]]
    if sorted(vocab.values()) != list(range(len(vocab))):
        raise ValueError("its token ids are not 0, 1, 2, ...")
    if END_OF_TEXT not in vocab or any(letter not in vocab for letter in _BYTES):
        raise ValueError("it does not cover every byte and the end of text")
    return Tokenizer(vocab, merges)


def train_tokenizer(counts: Mapping[str, int], size: int) -> Tokenizer:
    """Byte pair encoding of at most `size` tokens, the same on every machine.

    Fewer come out when the words give no more pairs; then the number is a multiple of 64.
    """
    words = [[_LETTERS[byte] for byte in word.encode()] for word in counts]
    weights = list(counts.values())
    merges = _learn(words, weights, size - 1 - len(_LETTERS))
    total = 1 + len(_LETTERS) + len(merges)
    del merges[max(0, len(merges) - (total - min(size, total // 64 * 64))) :]
    names = [END_OF_TEXT, *_LETTERS.values(), *(left + right for left, right in merges)]
    return Tokenizer({name: token for token, name in enumerate(names)}, merges)


def _learn(words: list[list[str]], weights: list[int], wanted: int) -> list[Pair]:
    pairs = _PairCounts(words, weights)
    merges: list[Pair] = []
    known = set(_BYTES)
    while len(merges) < wanted and (best := pairs.most_frequent()) is not None:
        pairs.merge(best)
        if best[0] + best[1] not in known:
            known.add(best[0] + best[1])
            merges.append(best)
    return merges


class _PairCounts:
    """How often each pair of neighbours occurs, kept up to date while pairs are merged."""

    def __init__(self, words: list[list[str]], weights: list[int]) -> None:
        self._words = words
        self._weights = weights
        self._totals: dict[Pair, int] = defaultdict(int)
        self._places: dict[Pair, set[int]] = defaultdict(set)
        for number in range(len(words)):
            self._count(number, 1)
        self._heap = [(-total, pair) for pair, total in self._totals.items()]
        heapq.heapify(self._heap)

    def most_frequent(self) -> Pair | None:
        """Ties go to the first in code point order; None when no pair is left."""
        while self._heap:
            total, pair = heapq.heappop(self._heap)
            if self._totals.get(pair, 0) == -total and total < 0:
                return pair
        return None

    def merge(self, pair: Pair) -> None:
        touched: set[Pair] = set()
        for number in sorted(self._places.pop(pair)):
            touched |= self._count(number, -1)
            self._words[number] = _merged(self._words[number], pair)
            touched |= self._count(number, 1)
        self._totals.pop(pair, None)
        for changed in touched:
            if self._totals.get(changed, 0) > 0:
                heapq.heappush(self._heap, (-self._totals[changed], changed))

    def _count(self, number: int, sign: int) -> set[Pair]:
        word = self._words[number]
        pairs = list(pairwise(word))
        for pair in pairs:
            self._totals[pair] += sign * self._weights[number]
            if sign > 0:
                self._places[pair].add(number)
        return set(pairs)


def _merged(parts: list[str], pair: Pair) -> list[str]:
    joined: list[str] = []
    at = 0
    while at < len(parts):
        if parts[at : at + 2] == list(pair):
            joined.append(pair[0] + pair[1])
            at += 2
        else:
            joined.append(parts[at])
            at += 1
    return joined
