"""Bytes that move: one line on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from coldsnap.render.progress import ProgressMode
from coldsnap.render.quantities import clock, rate, size_pair

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self, TextIO

_REDRAW = 0.1
_LINE = 10.0
"""Seconds between lines where nothing can be redrawn."""
_BAR = 24


class Meter:
    """Call it with bytes done and bytes in all; use it in a ``with`` block."""

    def __init__(
        self,
        mode: ProgressMode,
        stream: TextIO,
        what: str,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        if mode is ProgressMode.AUTO:
            mode = ProgressMode.TTY if stream.isatty() else ProgressMode.PLAIN
        self._mode, self._stream, self._what, self._now = mode, stream, what, now
        self._start = self._told = now()
        self._is_drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def __call__(self, done: int, total: int) -> None:
        if self._mode is ProgressMode.NONE:
            return
        now = self._now()
        if now - self._told < (_REDRAW if self._mode is ProgressMode.TTY else _LINE):
            return
        self._told = now
        if self._mode is ProgressMode.JSON:
            value = {"event": "progress", "message": self._what, "done": done, "total": total,
                     "unit": "bytes"}  # fmt: skip
            self._stream.write(json.dumps(value) + "\n")
        elif self._mode is ProgressMode.TTY:
            self._is_drawn = True
            self._stream.write(f"\r{self._bar(done, total)} {self._line(done, total, now)}\x1b[K")
        else:
            self._stream.write(self._line(done, total, now) + "\n")
        self._stream.flush()

    def _line(self, done: int, total: int, now: float) -> str:
        per_second = done / max(now - self._start, 1e-9)
        line = f"{self._what}  {size_pair(done, total)}  {rate(per_second)}"
        if not done:
            return line
        return f"{line}  {clock((total - done) / per_second)} left"

    def _bar(self, done: int, total: int) -> str:
        filled = _BAR * done // max(total, 1)
        return "[" + "#" * filled + "-" * (_BAR - filled) + "]"
