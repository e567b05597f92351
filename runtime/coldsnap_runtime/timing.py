"""Spans of what a verb did, on this host's CLOCK_BOOTTIME.

One clock per boot: its zero is the boot itself, so offsets of different verbs, processes and
jobs of one host compare and subtract. The result is a timing envelope, format 1.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Attribute = str | int | float | bool


def boottime() -> float:
    """Seconds since boot, suspend included; no wall-clock jump moves it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """Identity of the running kernel's boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


class Span:
    def __init__(self, identity: str, name: str, parent: str | None) -> None:
        self.identity = identity
        self.name = name
        self.parent = parent
        self.start = boottime()
        self.seconds = 0.0
        self.status = "ok"
        self.attributes: dict[str, str] = {}

    def note(self, **attributes: Attribute) -> None:
        """Add facts to the span (bytes moved, method used)."""
        self.attributes.update({name: _text(value) for name, value in attributes.items()})


class Timing:
    """Records nested spans: ``with timing.span("dump", pid=7) as span: ...``."""

    def __init__(self, unit: str = "") -> None:
        self._unit = unit
        self._clock = f"boot-{boot_id()[:8]}"
        self._origin_unix_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self._spans: list[Span] = []
        self._open: list[Span] = []

    @contextlib.contextmanager
    def span(self, name: str, **attributes: Attribute) -> Iterator[Span]:
        parent = self._open[-1].identity if self._open else None
        span = Span(f"s{len(self._spans) + 1}", name, parent)
        span.note(**attributes)
        self._spans.append(span)
        self._open.append(span)
        try:
            yield span
        except BaseException:
            span.status = "error"
            raise
        finally:
            self._open.pop()
            span.seconds = boottime() - span.start

    @property
    def current(self) -> str | None:
        """Identity of the span that is open."""
        return self._open[-1].identity if self._open else None

    def add(
        self,
        name: str,
        start: float,
        seconds: float,
        *,
        parent: str | None = None,
        attributes: Mapping[str, Attribute] | None = None,
        **more: Attribute,
    ) -> str:
        """Add a span measured elsewhere; its identity.

        Args:
            name: of the span.
            start: seconds since boot.
            seconds: how long it took.
            parent: identity of the span it lies in; by default the one that is open.
            attributes: facts, where their names may be any.
            more: facts.
        """
        if parent is None and self._open:
            parent = self._open[-1].identity
        span = Span(f"s{len(self._spans) + 1}", name, parent)
        span.note(**more)
        span.attributes.update({key: _text(value) for key, value in (attributes or {}).items()})
        span.start, span.seconds = start, seconds
        self._spans.append(span)
        return span.identity

    def absorb(self, other: Timing) -> None:
        """Take over all spans of another one of this host."""
        first = len(self._spans) + 1
        renamed = {span.identity: f"s{first + n}" for n, span in enumerate(other._spans)}
        for old in other._spans:
            span = Span(renamed[old.identity], old.name, renamed.get(old.parent or ""))
            span.start, span.seconds, span.status = old.start, old.seconds, old.status
            span.attributes = dict(old.attributes)
            self._spans.append(span)

    def to_json(self) -> dict[str, Any]:
        clock: dict[str, Any] = {
            "id": self._clock,
            "source": "CLOCK_BOOTTIME",
            "origin_unix_ns": self._origin_unix_ns,
        }
        if self._unit:
            clock["unit"] = self._unit
        return {"format": 1, "clocks": [clock], "spans": [self._span(s) for s in self._spans]}

    def _span(self, span: Span) -> dict[str, Any]:
        value: dict[str, Any] = {
            "id": span.identity,
            "name": span.name,
            "clock": self._clock,
            "start_offset_seconds": round(span.start, 6),
            "duration_seconds": round(span.seconds, 6),
            "status": span.status,
            "attributes": span.attributes,
        }
        if span.parent is not None:
            value["parent"] = span.parent
        return value


def _text(value: Attribute) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)[:512]
