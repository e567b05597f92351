"""Progress of a run, on stderr: live rows, one line per transition, NDJSON, or nothing."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self, TextIO

    from coldsnap.engine.events import RunEvent


class ProgressMode(StrEnum):
    AUTO = "auto"
    """`tty` on a terminal, else `plain`."""
    TTY = "tty"
    PLAIN = "plain"
    JSON = "json"
    NONE = "none"


class Progress(Protocol):
    """An `EventSink` with a life: use it in a ``with`` block around the run."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def __call__(self, event: RunEvent) -> None:
        """Called from many threads; quick, never raises."""

    def note(self, message: str) -> None:
        """One line of the story that is not an event."""


def open_progress(
    mode: ProgressMode, stream: TextIO, *, color: bool = False, verbose: bool = False
) -> Progress:
    """The progress of `mode` on `stream`; nothing is shown before its ``with`` block."""
    if mode is ProgressMode.AUTO:
        mode = ProgressMode.TTY if stream.isatty() else ProgressMode.PLAIN
    if mode is ProgressMode.TTY:
        from coldsnap.render.progress.live import LiveProgress  # noqa: PLC0415 - rich is slow

        return LiveProgress(stream, color=color, verbose=verbose)
    if mode is ProgressMode.JSON:
        from coldsnap.render.progress.ndjson import JsonProgress  # noqa: PLC0415

        return JsonProgress(stream)
    from coldsnap.render.progress.plain import NoProgress, PlainProgress  # noqa: PLC0415

    return NoProgress() if mode is ProgressMode.NONE else PlainProgress(stream, verbose=verbose)
