"""From tokens to text as it grows: whole characters only, held back where a stop may begin."""

from __future__ import annotations

import codecs

from coldsnap_reference_engine.tokenizer import Tokenizer


class TextStream:
    """The text of one answer. After a stop string nothing more comes, nor the string itself."""

    def __init__(self, tokenizer: Tokenizer, stop: tuple[str, ...]) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stop = stop
        self._held = ""
        self.length = 0
        """Characters decoded so far, given out or held back."""
        self.is_stopped = False

    def feed(self, token: int) -> str:
        """Text that is certain now."""
        if self.is_stopped:
            return ""
        fresh = self._decoder.decode(self._tokenizer.bytes_of(token))
        self.length += len(fresh)
        return self._release(self._held + fresh)

    def finish(self) -> str:
        """The rest, when the answer is over."""
        if self.is_stopped:
            return ""
        rest = self._held + self._decoder.decode(b"", final=True)
        found = [rest.find(stop) for stop in self._stop if stop in rest]
        self._held = ""
        return rest[: min(found)] if found else rest

    def _release(self, text: str) -> str:
        found = [text.find(stop) for stop in self._stop if stop in text]
        if found:
            self.is_stopped, self._held = True, ""
            return text[: min(found)]
        keep = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` with which `stop` begins."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
