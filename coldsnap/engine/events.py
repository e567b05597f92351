"""What happens during a run, as data: the walk emits it, the journal keeps it, render shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.preview import InstanceKey


class Kind(StrEnum):
    RUN_STARTED = "run-started"
    RUN_FINISHED = "run-finished"
    """`state`: succeeded | failed | recovered | partial | cancelled"""
    STEP_OBSERVED = "step-observed"
    STEP_STARTED = "step-started"
    """`message` is the change's summary"""
    STEP_PROGRESS = "step-progress"
    STEP_DONE = "step-done"
    """`state`: changed | unchanged"""
    STEP_SKIPPED = "step-skipped"
    STEP_RETRY = "step-retry"
    STEP_FAILED = "step-failed"
    STEP_RECOVERING = "step-recovering"
    STEP_RECOVERED = "step-recovered"
    CANCELLING = "cancelling"


@dataclass(frozen=True)
class RunEvent:
    kind: Kind
    run: str
    time: float
    """Unix seconds, for people; durations are measured on the monotonic clock."""
    key: InstanceKey | None = None
    type: str = ""
    state: str = ""
    message: str = ""
    done: int | None = None
    total: int | None = None
    unit: str = "B"
    seconds: float | None = None
    attempt: int = 1
    error: ColdSnapError | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    """STEP_DONE: outputs; STEP_OBSERVED: seen; RUN_FINISHED: summary."""


EventSink: TypeAlias = Callable[[RunEvent], None]
"""Called from many threads; must be quick and never raise."""
