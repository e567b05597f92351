"""How a run ended and which exit code that is: decided here and nowhere else.

| exit | meaning |
|---|---|
| 0 | done, or nothing to do |
| 1 | failed; nothing was changed, or all that was changed is put back |
| 2 | changes are pending (preview with ``--detailed-exitcode``) |
| 3 | stopped part-way: something is changed |
| 4 | the saved plan is stale |
| 130, 143 | cancelled by Ctrl-C, by SIGTERM |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.preview import Preview

EXIT_OK, EXIT_FAILED, EXIT_PENDING, EXIT_PARTIAL, EXIT_STALE = 0, 1, 2, 3, 4
_POSSIBLY_CHANGED = ("host.", "step.timeout", "run.cancelled", "internal.")


class RunState(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """Something failed before anything was changed."""
    RECOVERED = "recovered"
    """Something failed; all that was changed is put back."""
    PARTIAL = "partial"
    CANCELLED = "cancelled"
    ROLLED_BACK = "rolled-back"

    @property
    def is_final(self) -> bool:
        """Whether the run is closed for good: it can be neither resumed nor rolled back."""
        return self in (RunState.SUCCEEDED, RunState.ROLLED_BACK)


@dataclass(frozen=True)
class RunResult:
    """What `apply`, `resume` and `rollback` return."""

    run: str
    state: RunState
    exit_code: int
    changed: int
    """Instances that this run changed and that still are changed."""
    unchanged: int
    failed: int
    skipped: int
    recovered: int
    errors: tuple[ColdSnapError, ...]
    """Root causes, each once: what only inherited a failure is not among them."""
    seconds: float
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """Step -> list of {host, unit, outputs}."""
    folder: str = ""

    @property
    def error(self) -> ColdSnapError | None:
        return self.errors[0] if self.errors else None


def may_have_changed(error: ColdSnapError) -> bool:
    """Whether a failed `apply` may have left something changed.

    The step says so in `changed`; where the outcome could not be seen (host lost, time-out,
    cut off), it may have.
    """
    return error.changed or error.code.startswith(_POSSIBLY_CHANGED)


def state_of(*, failed: bool, cancelled: bool, changed: bool, recovered: bool) -> RunState:
    """The state of an apply.

    Args:
        failed: some instance failed.
        cancelled: the user asked to stop before the end.
        changed: something that this run changed is (or may be) still changed.
        recovered: something was put back.
    """
    if cancelled:
        return RunState.CANCELLED
    if not failed:
        return RunState.SUCCEEDED
    if changed:
        return RunState.PARTIAL
    return RunState.RECOVERED if recovered else RunState.FAILED


def exit_code_of(state: RunState, cancel_code: int = 130) -> int:
    """The exit code of a run's state; `cancel_code` is 130 or 143."""
    return {
        RunState.SUCCEEDED: EXIT_OK,
        RunState.ROLLED_BACK: EXIT_OK,
        RunState.FAILED: EXIT_FAILED,
        RunState.RECOVERED: EXIT_FAILED,
        RunState.PARTIAL: EXIT_PARTIAL,
        RunState.CANCELLED: cancel_code,
    }[state]


def unsealed(state: RunState, exit_code: int, *, changed: bool) -> tuple[RunState, int]:
    """State and exit code of a run whose end could not be recorded: it is no success."""
    if exit_code != EXIT_OK:
        return state, exit_code
    state = RunState.PARTIAL if changed else RunState.FAILED
    return state, exit_code_of(state)


def exit_code_of_error(error: ColdSnapError) -> int:
    """The exit code of a command that ended with an error outside any run."""
    if error.code == "plan.stale":
        return EXIT_STALE
    if error.code == "run.cancelled":
        return 130
    return EXIT_PARTIAL if error.changed else EXIT_FAILED


def exit_code_of_preview(preview: Preview, *, detailed: bool = False) -> int:
    """The exit code of ``plan diff``: 1 with errors; 2 only with ``--detailed-exitcode``."""
    if preview.errors:
        return EXIT_FAILED
    return EXIT_PENDING if detailed and preview.is_pending else EXIT_OK


def root_causes(errors: Iterable[ColdSnapError]) -> tuple[ColdSnapError, ...]:
    """Each error once; those that only follow from another are left out.

    Whoever waited in a barrier for an instance that failed has not failed by itself.
    """
    unique: dict[tuple[str, str, str], ColdSnapError] = {}
    for error in errors:
        unique.setdefault((error.code, error.where, error.message), error)
    causes = tuple(error for error in unique.values() if error.code != "barrier.aborted")
    return causes or tuple(unique.values())
