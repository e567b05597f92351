"""Where the bytes of a command go: bounded tails, and the event lines among them.

Commands may print gigabytes, or bytes that are not UTF-8; neither may cost memory or fail.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

Sink: TypeAlias = Callable[[bytes], None]

LINE_LIMIT = 32 << 20
"""Longest event line in bytes; the result of a checkpoint lists thousands of files."""


class Tail:
    """Keeps the last `limit` bytes of what it is given."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._chunks: deque[bytes] = deque()
        self._held = 0

    def __call__(self, chunk: bytes) -> None:
        self.total += len(chunk)
        self._chunks.append(chunk)
        self._held += len(chunk)
        while self._held - len(self._chunks[0]) >= self.limit:
            self._held -= len(self._chunks.popleft())

    @property
    def is_cut(self) -> bool:
        return self.total > self.limit

    def data(self) -> bytes:
        return b"".join(self._chunks)[-self.limit :]

    def text(self) -> str:
        """As UTF-8; bytes that are none become U+FFFD."""
        return self.data().decode("utf-8", errors="replace")


class EventLines:
    """Finds the JSON event lines of the runtime in a stream and hands them on as they come.

    Lines that start with ``{"event"`` are events; ``result`` lines are kept instead of emitted.
    """

    def __init__(self, emit: Callable[[dict[str, Any]], None]) -> None:
        self._emit = emit
        self._line = bytearray()
        self._skip = False
        self.result: dict[str, Any] | None = None
        """The last result line, parsed."""

    def __call__(self, chunk: bytes) -> None:
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._extend(chunk[start:end])
            self._finish()
            start = end + 1
        self._extend(chunk[start:])

    def close(self) -> None:
        """The stream ended: a last line without newline counts too."""
        self._finish()

    def _extend(self, part: bytes) -> None:
        if self._skip or not part:
            return
        self._line += part
        if self._line[:1] != b"{" or len(self._line) > LINE_LIMIT:
            self._skip = True
            self._line.clear()

    def _finish(self) -> None:
        line, self._skip = bytes(self._line), False
        self._line.clear()
        if b'"event"' not in line[:64]:
            return
        try:
            event = json.loads(line)
        except ValueError:
            return
        if not isinstance(event, dict) or not isinstance(event.get("event"), str):
            return
        if event["event"] == "result":
            self.result = event
        else:
            self._emit(event)
