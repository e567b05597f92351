"""What is known of the running steps: one row each, fed by events, read by the displays."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coldsnap.engine.events import Kind, RunEvent
from coldsnap.render.palette import clean
from coldsnap.render.quantities import duration, rate, size_pair
from coldsnap.render.run_states import run_word

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldsnap.engine.preview import InstanceKey

HEARTBEAT = "heartbeat"
"""State of an event by which the engine says only that a step still runs."""
_WINDOW = 3.0
"""Seconds of samples that a rate is measured over."""


@dataclass
class Row:
    """One running instance."""

    key: InstanceKey
    started: float
    """On the monotonic clock of the tracker."""
    message: str = ""
    done: int | None = None
    total: int | None = None
    unit: str = "B"
    attempt: int = 1
    recovering: bool = False
    samples: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=64))

    @property
    def per_second(self) -> float | None:
        """Units per second over the last seconds; None when it cannot be told."""
        if len(self.samples) < 2:  # noqa: PLR2004 - a rate needs two points
            return None
        (first, low), (last, high) = self.samples[0], self.samples[-1]
        if last - first <= 0 or high < low:
            return None
        return (high - low) / (last - first)

    @property
    def seconds_left(self) -> float | None:
        speed = self.per_second
        if not speed or self.total is None or self.done is None:
            return None
        return max(0, self.total - self.done) / speed

    @property
    def fraction(self) -> float | None:
        if self.done is None or not self.total:
            return None
        return min(1.0, max(0.0, self.done / self.total))

    def amount(self) -> str:
        """``1.4/1.9 GiB  412 MB/s``, ``3/8``; empty when nothing is counted."""
        if self.done is None:
            return ""
        if self.unit != "B":
            total = f"/{self.total}" if self.total else ""
            return f"{self.done}{total} {clean(self.unit)}".rstrip()
        speed = self.per_second
        shown = size_pair(self.done, self.total)
        return f"{shown}  {rate(speed)}" if speed else shown

    def note(self, event: RunEvent, now: float) -> None:
        """Take over what a progress event says; a sign of life says nothing new."""
        if event.state == HEARTBEAT:
            return
        if event.message and event.message != self.message:
            self.message = event.message
            if event.done is None:
                self.done, self.total = None, None
                self.samples.clear()
        if event.done is None:
            return
        if self.done is not None and event.done < self.done:
            self.samples.clear()
        self.done, self.total, self.unit = event.done, event.total, event.unit
        self.samples.append((now, event.done))
        while self.samples and now - self.samples[0][0] > _WINDOW and len(self.samples) > 2:  # noqa: PLR2004
            self.samples.popleft()


class Tracker:
    """Rows of running instances, in the order in which they started. Not locked."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.now = monotonic
        self.rows: dict[InstanceKey, Row] = {}

    def take(self, event: RunEvent) -> Row | None:
        """Apply `event`; the row that it concerned, also when it has just ended."""
        key = event.key
        if key is None:
            return None
        if event.kind is Kind.STEP_STARTED:
            self.rows[key] = Row(key, self.now(), event.message, attempt=event.attempt)
        elif event.kind is Kind.STEP_RECOVERING:
            row = self.rows[key] = Row(key, self.now(), event.message or "put back")
            row.recovering = True
        row = self.rows.get(key) or Row(key, self.now())
        if event.kind is Kind.STEP_PROGRESS and key in self.rows:
            row.note(event, self.now())
        if event.kind is Kind.STEP_RETRY:
            row.attempt, row.done, row.total = event.attempt, None, None
        if event.kind in _ENDS:
            self.rows.pop(key, None)
        return row


_ENDS = frozenset({Kind.STEP_DONE, Kind.STEP_SKIPPED, Kind.STEP_FAILED, Kind.STEP_RECOVERED})


def label(key: InstanceKey) -> tuple[str, str]:
    """Host and step as two columns: ``("gpu-1", "capture.stage u0")``."""
    step = f"{key.step} {key.unit}" if key.unit else key.step
    return clean(key.host or "run"), clean(step)


def sentence(event: RunEvent, *, verbose: bool = False) -> tuple[str, str] | None:
    """What a transition says and its style; None for what is not worth a line."""
    if event.kind is Kind.RUN_STARTED:
        return f"run {event.run} started", "dim"
    if event.kind is Kind.RUN_FINISHED:
        took = f" in {duration(event.seconds)}" if event.seconds is not None else ""
        return f"run {event.run} {run_word(event.state)}{took}", _RUN_STYLES.get(
            event.state, "error"
        )
    if event.kind is Kind.CANCELLING:
        return clean(event.message) or CANCELLING, "warn"
    return _step_sentence(event, verbose=verbose)


CANCELLING = (
    "cancelling: running steps are finished or undone, please wait (Ctrl-C again stops at once)"
)
_RUN_STYLES = {"succeeded": "good", "recovered": "warn", "cancelled": "warn"}


def _step_sentence(event: RunEvent, *, verbose: bool) -> tuple[str, str] | None:
    message = clean(event.message)
    took = f"  {duration(event.seconds)}" if event.seconds is not None else ""
    cause = f": {_reason(event)}" if _reason(event) else ""
    texts: dict[Kind, tuple[str, str] | None] = {
        Kind.STEP_STARTED: (message or "started", ""),
        Kind.STEP_FAILED: (f"failed{took}{cause}", "error"),
        Kind.STEP_RETRY: (f"try {event.attempt} failed, it is tried again{cause}", "warn"),
        Kind.STEP_RECOVERING: (message or "putting back", "warn"),
        Kind.STEP_RECOVERED: (f"put back{took}", "warn"),
    }
    if event.kind is Kind.STEP_DONE:
        if event.state == "unchanged":
            return ("nothing to do" + took, "dim") if verbose else None
        return f"done{took}" + (f"  {message}" if message else ""), "good"
    if event.kind is Kind.STEP_SKIPPED:
        return (f"skipped{cause}", "dim") if verbose else None
    if event.kind is Kind.STEP_OBSERVED:
        return ("looked at" + took, "dim") if verbose else None
    return texts.get(event.kind)


def _reason(event: RunEvent) -> str:
    if event.error is not None:
        return f"error[{event.error.code}] {clean(event.error.message)}"
    return clean(event.message)


def heartbeat(row: Row, now: float) -> str:
    """What a step that says nothing by itself is still at."""
    words = [f"still running ({duration(now - row.started)})"]
    if row.message:
        words.append(clean(row.message))
    amount = row.amount()
    if amount:
        words.append(amount)
    return "  ".join(words)
