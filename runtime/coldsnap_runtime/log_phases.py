"""What a starting engine is busy with, by what its log says: spans below the one that is open.

An engine's pack names lines that end a phase: ``("weights", "took (?P<seconds>[0-9.]+) s")``.
A line with seconds ends a phase that took so long; one without ends what began with the line
before, or with the start. When a line came is when it was seen, to a twentieth of a second.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.timing import boottime

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Self

    from coldsnap_runtime.timing import Timing

_PERIOD = 0.05
_MOST_PATTERNS, _LONGEST_PATTERN = 32, 256
_MOST_SPANS = 64
_MOST_AT_ONCE = 1 << 20


class LogPhases:
    """Reads the log in a thread while it is entered; adds the spans when it is left."""

    def __init__(self, log: Path, patterns: Sequence[tuple[str, str]], timing: Timing) -> None:
        self._log, self._timing = log, timing
        self._patterns = compiled(patterns)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, name="log-phases", daemon=True)
        self._begin = self._last = boottime()
        self._offset, self._rest = 0, b""
        self._found: list[tuple[str, float, float]] = []

    def __enter__(self) -> Self:
        if self._patterns:
            self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if not self._patterns:
            return
        self._stop.set()
        self._thread.join()
        for name, start, seconds in self._found:
            self._timing.add(name, start, seconds)

    def _read(self) -> None:
        while not self._stop.wait(_PERIOD):
            self._look()
        self._look()

    def _look(self) -> None:
        try:
            with self._log.open("rb") as file:
                file.seek(self._offset)
                data = file.read(_MOST_AT_ONCE)
        except OSError:
            return
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-4096:]
        for line in lines:
            self._match(line.decode("utf-8", "replace")[:2000])

    def _match(self, line: str) -> None:
        for name, pattern in self._patterns:
            found = pattern.search(line)
            if found is None or len(self._found) >= _MOST_SPANS:
                continue
            end = boottime()
            told = found.groupdict().get("seconds")
            start = max(self._begin, end - float(told)) if told else self._last
            self._found.append((name, start, end - start))
            self._last = end
            return


def compiled(patterns: Sequence[tuple[str, str]]) -> list[tuple[str, re.Pattern[str]]]:
    """Raises ColdSnapError ``request.invalid``."""
    try:
        return [
            (name[:64], re.compile(text[:_LONGEST_PATTERN]))
            for name, text in patterns[:_MOST_PATTERNS]
        ]
    except re.error as error:
        raise ColdSnapError("request.invalid", f"unit.launch: phases: {error}") from error


def phases_asked(value: object) -> list[tuple[str, str]]:
    """From a request: a list of pairs of texts; what is not one is left out."""
    if not isinstance(value, list):
        return []
    return [
        (pair[0], pair[1])
        for pair in value
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, str) for x in pair)  # noqa: PLR2004
    ]
