"""The timing envelope, format 1: what took how long, on whose clock.

Offsets and durations belong to one clock; those of different clocks are never added. Spans of
one clock may overlap. Timing is evidence beside a result and never decides it: an envelope that
breaks a rule is dropped (`accept`), the operation goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from coldsnap.artifact.decode import Record, decode, parse
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.rules import Count, Id, Seconds, Text, Wide

MAX_TIMING_BYTES = 8 << 20
MAX_CLOCKS, MAX_SPANS, MAX_ATTRIBUTES = 128, 2048, 32

Name = Annotated[str, Text(r"\S(?:.*\S)?", 1, 128, "a trimmed name")]
SourceName = Annotated[str, Text(r"\S(?:.*\S)?", 1, 64, "a trimmed name")]
Attribute = Annotated[str, Text(r"(?:\S(?:.*\S)?)?", 0, 512, "a trimmed text")]
Attributes = Annotated[Mapping[Name, Attribute], Count(0, MAX_ATTRIBUTES, of_object=True)]


@dataclass(frozen=True)
class Clock(Record):
    id: Id
    source: SourceName
    """What it reads, such as CLOCK_BOOTTIME or monotonic."""
    origin_unix_ns: Wide
    """Its zero by that machine's wall clock; for people."""
    unit: Id | None = None
    worker: Id | None = None


@dataclass(frozen=True)
class Span(Record):
    id: Id
    name: Name
    clock: Id
    start_offset_seconds: Seconds
    duration_seconds: Seconds
    status: Literal["ok", "error"] = "ok"
    parent: Id | None = None
    attributes: Attributes = field(default_factory=dict)
    """Worker spans that sum up many carry placement=aggregate."""


@dataclass(frozen=True)
class Timing(Record):
    clocks: Annotated[tuple[Clock, ...], Count(1, MAX_CLOCKS)]
    spans: Annotated[tuple[Span, ...], Count(1, MAX_SPANS)]
    format: Literal[1] = 1

    def problems(self) -> Iterator[tuple[str, str]]:
        clocks = {clock.id for clock in self.clocks}
        spans = {span.id: span for span in self.spans}
        if len(clocks) != len(self.clocks):
            yield "/clocks", "two clocks have one id"
        if len(spans) != len(self.spans):
            yield "/spans", "two spans have one id"
        for index, span in enumerate(self.spans):
            if span.clock not in clocks:
                yield f"/spans/{index}/clock", f"there is no clock {span.clock!r}"
            if span.parent is not None and span.parent not in spans:
                yield f"/spans/{index}/parent", f"there is no span {span.parent!r}"
            if _is_own_ancestor(span, spans):
                yield f"/spans/{index}/parent", "is below the span itself"


def _is_own_ancestor(span: Span, spans: Mapping[str, Span]) -> bool:
    seen = {span.id}
    parent = span.parent
    while parent is not None and parent in spans:
        if parent in seen:
            return parent == span.id
        seen.add(parent)
        parent = spans[parent].parent
    return False


def read_timing(data: bytes) -> Timing:
    """The checked envelope in `data`.

    Raises:
        ColdSnapError: ``timing.invalid``.
    """
    value = parse(data, limit=MAX_TIMING_BYTES, what="timing", code="timing.invalid")
    return decode(Timing, value, what="timing", code="timing.invalid")


def accept(value: Any) -> Timing | None:
    """The envelope in a parsed JSON value, or None if it is none."""
    try:
        return decode(Timing, value, what="timing", code="timing.invalid")
    except ColdSnapError:
        return None


def merge(parts: Mapping[str, Timing]) -> Timing | None:
    """One envelope of several: ids get ``NAME.`` in front; None for nothing.

    Equal clocks (same source, same zero to the millisecond, same unit) become one. What does
    not fit the limits is left out, the last parts first.
    """
    clocks: dict[tuple[Any, ...], Clock] = {}
    spans: list[Span] = []
    for name, part in parts.items():
        renamed = {}
        for clock in part.clocks:
            key = (clock.source, clock.origin_unix_ns // 10**6, clock.unit, clock.worker)
            kept = clocks.setdefault(key, replace(clock, id=f"{name}.{clock.id}"[:128]))
            renamed[clock.id] = kept.id
        if len(clocks) > MAX_CLOCKS or len(spans) + len(part.spans) > MAX_SPANS:
            break
        for span in part.spans:
            parent = None if span.parent is None else f"{name}.{span.parent}"[:128]
            moved = replace(span, id=f"{name}.{span.id}"[:128], parent=parent)
            spans.append(replace(moved, clock=renamed[span.clock]))
    used = {span.clock for span in spans}
    kept_clocks = tuple(clock for clock in clocks.values() if clock.id in used)
    return accept(Timing(kept_clocks, tuple(spans)).to_json()) if spans else None


_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Counts suspend too, where the system has such a clock."""


def _now() -> int:
    return time.clock_gettime_ns(_CLOCK)


class Stopwatch:
    """Builds an envelope on one clock: ``with watch.span("dump", bytes=7): ...``."""

    def __init__(self, clock: str = "local", *, unit: str | None = None) -> None:
        name = "monotonic" if _CLOCK == time.CLOCK_MONOTONIC else "CLOCK_BOOTTIME"
        self._start = _now()
        self._clock = Clock(clock, name, time.time_ns(), unit)
        self._spans: list[Span] = []
        self._open: list[str] = []
        self._count = 0

    @contextmanager
    def span(self, name: str, **attributes: str | float) -> Iterator[dict[str, str]]:
        """Measure the block; attributes may be added to the mapping while it runs."""
        self._count += 1
        identity = f"s{self._count}"
        parent = self._open[-1] if self._open else None
        notes = {key: str(value) for key, value in attributes.items()}
        start, status = _now(), "ok"
        self._open.append(identity)
        try:
            yield notes
        except BaseException:
            status = "error"
            raise
        finally:
            self._open.remove(identity)
            end = _now()
            self._spans.append(
                Span(
                    id=identity,
                    name=name,
                    clock=self._clock.id,
                    start_offset_seconds=(start - self._start) / 1e9,
                    duration_seconds=(end - start) / 1e9,
                    status="ok" if status == "ok" else "error",
                    parent=parent,
                    attributes={key: _tidy(value) for key, value in notes.items()},
                )
            )

    def timing(self) -> Timing | None:
        """The envelope so far; None while no span has ended, or if there are too many."""
        spans = sorted(self._spans, key=lambda span: (span.start_offset_seconds, span.id))
        known = {span.id for span in spans}
        closed = [s if s.parent in known else replace(s, parent=None) for s in spans]
        return accept(Timing((self._clock,), tuple(closed)).to_json()) if closed else None


def _tidy(value: str) -> str:
    """Within the limits of an attribute: evidence is cut, not refused."""
    return " ".join(value.split())[:512].strip()
