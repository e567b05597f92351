"""The timing event stream, format 1: what happens, while it happens, one JSON object per line.

Advisory: the receipt wins, and a stream that cannot be written never fails the operation. Order:
``stream_start``, then clocks, spans starting and completing, then ``stream_complete`` with the
digest of the receipt's timing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from coldsnap.artifact import canonical
from coldsnap.artifact.decode import Record, decode, parse
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.rules import Between, Digest, Id, Seconds
from coldsnap.artifact.timing import Attributes, Clock, Name, Span, Timing

MAX_EVENTS = 8192
MAX_EVENT_BYTES = 64 << 10

EventName = Literal["stream_start", "clock", "span_start", "span_complete", "stream_complete"]


@dataclass(frozen=True)
class StartedSpan(Record):
    """A span that has begun: neither duration nor status yet, or both once it is complete."""

    id: Id
    name: Name
    clock: Id
    start_offset_seconds: Seconds
    duration_seconds: Seconds | None = None
    status: Literal["ok", "error"] | None = None
    parent: Id | None = None
    attributes: Attributes | None = None

    def same_start(self, other: StartedSpan) -> bool:
        """Whether a completion fits its start; an added ``error`` attribute is allowed."""

        def start(span: StartedSpan) -> StartedSpan:
            notes = {k: v for k, v in (span.attributes or {}).items() if k != "error"}
            return replace(span, duration_seconds=None, status=None, attributes=notes)

        return start(self) == start(other)


@dataclass(frozen=True)
class TimingEvent(Record):
    sequence: Annotated[int, Between(1, MAX_EVENTS)]
    event: EventName
    operation_id: Id
    request_sha256: Digest
    clock: Clock | None = None
    span: StartedSpan | None = None
    state: Literal["succeeded", "failed"] | None = None
    timing_sha256: Digest | None = None
    format: Literal[1] = 1
    kind: Literal["coldsnap-timing-event"] = "coldsnap-timing-event"

    def problems(self) -> Iterator[tuple[str, str]]:
        expected = _FIELDS[self.event]
        for name in ("clock", "span", "state", "timing_sha256"):
            present = getattr(self, name) is not None
            if present and name not in expected:
                yield f"/{name}", f"has no place in {self.event}"
            if not present and name in expected and name != "timing_sha256":
                yield f"/{name}", f"is missing from {self.event}"
        if self.span is not None:
            is_done = self.span.duration_seconds is not None and self.span.status is not None
            is_open = self.span.duration_seconds is None and self.span.status is None
            if not (is_done if self.event == "span_complete" else is_open):
                yield "/span", f"duration and status do not fit {self.event}"


_FIELDS: dict[str, tuple[str, ...]] = {
    "stream_start": (),
    "clock": ("clock",),
    "span_start": ("span",),
    "span_complete": ("span",),
    "stream_complete": ("state", "timing_sha256"),
}


class EventWriter:
    """Writes a stream through `write`, which gets one line at a time; stops at the first failure.

    `broken` tells whether it stopped; nothing is raised.
    """

    def __init__(
        self, write: Callable[[bytes], object], operation_id: str, request_sha256: str
    ) -> None:
        self._write = write
        self._identity = (operation_id, request_sha256)
        self._sequence = 0
        self.broken = False
        self._emit("stream_start")

    def clock(self, clock: Clock) -> None:
        self._emit("clock", clock=clock)

    def span_start(self, span: Span) -> None:
        self._emit("span_start", span=_started(span, complete=False))

    def span_complete(self, span: Span) -> None:
        self._emit("span_complete", span=_started(span, complete=True))

    def complete(self, state: Literal["succeeded", "failed"], timing: Timing | None) -> None:
        """The last event, bound to the receipt's timing."""
        sha256 = None if timing is None else canonical.digest(timing.to_json())
        self._emit("stream_complete", state=state, timing_sha256=sha256)

    def _emit(
        self,
        event: EventName,
        *,
        clock: Clock | None = None,
        span: StartedSpan | None = None,
        state: Literal["succeeded", "failed"] | None = None,
        timing_sha256: str | None = None,
    ) -> None:
        # One place is kept for the end of the stream.
        is_full = self._sequence >= MAX_EVENTS - 1 and event != "stream_complete"
        if self.broken or is_full:
            return
        self._sequence += 1
        line = TimingEvent(
            self._sequence, event, *self._identity, clock, span, state, timing_sha256
        )
        try:
            self._write(canonical.dumps(line.to_json()).encode("ascii") + b"\n")
        except (OSError, ValueError, ColdSnapError):
            self.broken = True


def read_events(lines: Iterable[bytes]) -> Iterator[TimingEvent]:
    """The events of a stream, each checked by itself and against those before it.

    Raises:
        ColdSnapError: ``events.invalid`` naming the line.
    """
    state = _StreamState()
    for number, line in enumerate(lines, 1):
        what = f"event {number}"
        value = parse(line, limit=MAX_EVENT_BYTES, what=what, code="events.invalid")
        event = decode(TimingEvent, value, what=what, code="events.invalid")
        if reason := state.refuse(event):
            raise ColdSnapError("events.invalid", f"{what}: {reason}")
        yield event
    if not state.complete:
        raise ColdSnapError("events.invalid", "the stream has no end")


class _StreamState:
    def __init__(self) -> None:
        self.complete = False
        self._first: TimingEvent | None = None
        self._sequence = 0
        self._clocks: set[str] = set()
        self._open: dict[str, StartedSpan] = {}
        self._known: set[str] = set()

    def refuse(self, event: TimingEvent) -> str:
        """Why this event cannot come here; empty if it can."""
        if self.complete:
            return "comes after the end of the stream"
        self._sequence += 1
        if event.sequence != self._sequence:
            return f"sequence must be {self._sequence}, is {event.sequence}"
        if (event.event == "stream_start") != (self._first is None):
            return "the stream starts with stream_start, once"
        self._first = self._first or event
        first = (self._first.operation_id, self._first.request_sha256)
        if (event.operation_id, event.request_sha256) != first:
            return "belongs to another operation"
        return self._place(event)

    def _place(self, event: TimingEvent) -> str:
        if event.clock is not None:
            if event.clock.id in self._clocks:
                return f"clock {event.clock.id!r} comes twice"
            self._clocks.add(event.clock.id)
        if event.span is not None:
            return self._place_span(event, event.span)
        if event.event == "stream_complete":
            self.complete = True
            return f"span {next(iter(self._open))!r} is still open" if self._open else ""
        return ""

    def _place_span(self, event: TimingEvent, span: StartedSpan) -> str:
        if span.clock not in self._clocks:
            return f"clock {span.clock!r} is used before it is told"
        if span.parent is not None and span.parent not in self._known:
            return f"parent {span.parent!r} comes before its child"
        started = self._open.pop(span.id, None)
        if event.event == "span_complete" and started is not None:
            return "" if span.same_start(started) else "completion does not match its start"
        if span.id in self._known:
            return f"span {span.id!r} comes twice"
        self._known.add(span.id)
        if event.event == "span_start":
            self._open[span.id] = span
        return ""


def _started(span: Span, *, complete: bool) -> StartedSpan:
    return StartedSpan(
        id=span.id,
        name=span.name,
        clock=span.clock,
        start_offset_seconds=span.start_offset_seconds,
        duration_seconds=span.duration_seconds if complete else None,
        status=span.status if complete else None,
        parent=span.parent,
        attributes=span.attributes,
    )
