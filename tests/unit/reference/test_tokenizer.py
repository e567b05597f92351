from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_reference_engine.text import TextStream
from coldsnap_reference_engine.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from coldsnap_reference_engine.vocabulary import word_counts

TOKENIZER = train_tokenizer(word_counts(), 1024)


@given(st.text())
def test_round_trip(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_words_become_few_tokens() -> None:
    text = "The capital of France is"
    assert len(TOKENIZER.encode(text)) < len(text) / 2


def test_size_is_what_was_asked() -> None:
    assert TOKENIZER.size == 1024
    assert sorted(TOKENIZER.vocab.values()) == list(range(1024))


def test_training_is_deterministic() -> None:
    assert train_tokenizer(word_counts(), 1024).merges == TOKENIZER.merges


def test_saved_and_loaded_encodes_the_same(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    text = "Hello world, naïve 東京\n\n x_1 = 3.14"
    assert loaded.encode(text) == TOKENIZER.encode(text)


def test_name_of_a_part_of_a_character() -> None:
    (token,) = TOKENIZER.encode("é")[:1]
    assert TOKENIZER.name(token) == "bytes:\\xc3"


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value["model"]["vocab"].pop("<|endoftext|>"),
        lambda value: value["model"]["vocab"].update({"a": 99999}),
        lambda value: value.pop("model"),
    ],
)
def test_damaged_file_is_refused(tmp_path: Path, change: object) -> None:
    path = tmp_path / "tokenizer.json"
    TOKENIZER.save(path)
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))
    with pytest.raises(ColdSnapError, match=r"model\.invalid"):
        load_tokenizer(path)


def feed(tokenizer: Tokenizer, text: str, *stop: str) -> tuple[list[str], bool]:
    stream = TextStream(tokenizer, stop)
    pieces = [stream.feed(token) for token in tokenizer.encode(text)]
    return [*pieces, stream.finish()], stream.is_stopped


@given(st.text(max_size=40))
def test_streamed_text_is_the_text(text: str) -> None:
    pieces, _ = feed(TOKENIZER, text)
    assert "".join(pieces) == text


def test_no_piece_ends_inside_a_character() -> None:
    pieces, _ = feed(TOKENIZER, "日本語")
    assert all("\ufffd" not in piece for piece in pieces)


@given(st.text("ab", max_size=30), st.text("ab", min_size=1, max_size=4))
def test_stop_cuts_where_it_first_appears(text: str, stop: str) -> None:
    pieces, is_stopped = feed(TOKENIZER, text, stop)
    assert "".join(pieces) == text.split(stop, 1)[0]
    assert is_stopped == (stop in text)


def test_nothing_of_a_stop_leaks_before_it_is_whole() -> None:
    stream = TextStream(TOKENIZER, ("abc",))
    (a,), (b,) = TOKENIZER.encode("a"), TOKENIZER.encode("b")
    assert stream.feed(a) == ""
    assert stream.feed(b) == ""
    assert stream.finish() == "ab"
