"""The end of an engine's log, for errors: the first thing a person would look at."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_TAIL_BYTES = 64 << 10
_MAX_LINE = 400
_SIGNAL_BASE = 128
_RAISED = re.compile(
    r"(?:^|[\])] )(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit): \S"
)
"""The last line of a traceback, also behind what an engine puts before each line."""


def log_tail(path: Path, lines: int = 12) -> tuple[str, ...]:
    """The first error of its end, its last `lines` lines, where it is; empty if there is none.

    Blank lines do not count; an error among the last lines is not said twice.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ()
    with open(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        file.seek(max(0, size - _TAIL_BYTES))
        text = file.read(_TAIL_BYTES).decode("utf-8", "replace")
    kept = [_printable(line) for line in text.splitlines() if line.strip()]
    first = next((line for line in kept[:-lines] if _RAISED.search(line)), "")
    # A process that fails because another one did says so last; what came first is the cause.
    cause = (f"first error in the log: {first}",) if first else ()
    return (*cause, *(f"log: {line}" for line in kept[-lines:]), f"all of it: {path}")


def exit_report(path: Path) -> str:
    """How the unit's root ended, as its PID 1 wrote it: ``exited 3``, ``killed 9``, or empty."""
    try:
        words = path.read_bytes()[-256:].decode("ascii", "replace").split("\n")
    except OSError:
        return ""
    ended = [line for line in words if line.startswith(("exited ", "killed "))]
    if not ended:
        return ""
    kind, _, number = ended[-1].partition(" ")
    if kind == "killed":
        return f"was killed by {_signal(number)}"
    # The supervisor above the engine ends as a shell would.
    behind = int(number) - _SIGNAL_BASE if number.isdigit() else 0
    return f"exited with status {number}" + (f" ({_signal(str(behind))})" if behind > 0 else "")


def _signal(number: str) -> str:
    try:
        return f"signal {number}, {signal.Signals(int(number)).name}"
    except ValueError:
        return f"signal {number}"


def _printable(line: str) -> str:
    """Without control characters: an engine's colours must not reach a terminal from here."""
    return "".join(c for c in line if c.isprintable() or c == "\t")[:_MAX_LINE]
