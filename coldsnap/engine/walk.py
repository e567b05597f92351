"""The walk: every instance of a plan to its end, in order, in parallel, with what failure means.

| on_failure | when an instance fails |
|---|---|
| recover | nothing more starts; what runs ends; all that this run changed is put back |
| continue | what needs it is skipped; everything else goes on |
| stop | nothing more starts; everything is left as it is |

A cancel is like `stop`, but a step that pauses serving is put back when what needs it did not
get done: nobody wants to have paused a service for nothing. That holds for one that cuts off, too.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from enum import StrEnum

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.attempt import Done
from coldsnap.engine.attempts import Attempts
from coldsnap.engine.barrier import Barriers
from coldsnap.engine.context import Contexts
from coldsnap.engine.events import Kind
from coldsnap.engine.history import State
from coldsnap.engine.instances import Expansion, Instance
from coldsnap.engine.outside import Outside
from coldsnap.engine.preview import InstanceKey
from coldsnap.engine.recorder import Recorder
from coldsnap.engine.schedule import Schedule
from coldsnap.plan.model import OnFailure

_HANDS_OFF = ("journal.", "lease.lost")
"""Codes after which nothing may be put back: it could not be recorded, or is not ours."""


class Verdict(StrEnum):
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    KEPT = "kept"
    """Done by an earlier process of this run."""
    SKIPPED = "skipped"
    """``when`` is false, or a slice leaves it out."""
    BLOCKED = "blocked"
    """Something that it needs failed."""
    FAILED = "failed"


class Walk:
    def __init__(
        self,
        expansion: Expansion,
        contexts: Contexts,
        attempts: Attempts,
        recorder: Recorder,
        schedule: Schedule,
        barriers: Barriers,
        outside: Outside,
        halted: threading.Event,
        *,
        kept: frozenset[InstanceKey] = frozenset(),
        lost: Mapping[str, ColdSnapError] | None = None,
    ) -> None:
        self._expansion, self._contexts, self._attempts = expansion, contexts, attempts
        self._recorder, self._schedule, self._barriers = recorder, schedule, barriers
        self._outside, self._halted = outside, halted
        self._kept, self._lost = kept, dict(lost or {})
        self._lock = threading.Lock()
        self.verdicts: dict[InstanceKey, Verdict] = {}
        self.failures: dict[InstanceKey, ColdSnapError] = {}
        self.refusals: list[ColdSnapError] = []
        """What ended the run from outside of any step."""
        self.given_up: list[InstanceKey] = []
        self.leave = False
        """Put nothing back: a step said `stop`, the lease is lost, or the journal is full."""

    def run(self) -> None:
        for key in self._kept:
            self._barriers.excuse(key.step, self._expansion.by_key[key].label)
        self.given_up = self._schedule.run(self._visit, self._blocked)

    def halt(self, reason: str) -> None:
        """Start nothing more, let nobody wait for what will not come."""
        self._halted.set()
        for key in self._schedule.halt():
            self._withdraw(self._expansion.by_key[key], reason)

    def refuse(self, error: ColdSnapError) -> None:
        """Something outside of any step ends the run: nothing may be touched any more."""
        with self._lock:
            self.leave = True
            self.refusals.append(error)
        self.halt(error.message)

    def wants_recovery(self) -> bool:
        policies = {self._expansion.by_key[key].node.on_failure for key in self.failures}
        return OnFailure.RECOVER in policies and not self.leave

    def _visit(self, key: InstanceKey) -> bool:
        instance = self._expansion.by_key[key]
        try:
            return self._brought(instance)
        except ColdSnapError as error:
            self._failed(instance, error)
            return False
        except Exception as error:  # noqa: BLE001 - a thread's end must be accounted for
            self._failed(instance, _crashed(instance, error))
            return False

    def _brought(self, instance: Instance) -> bool:
        key = instance.key
        if key in self._kept:
            self._keep(instance)
        elif self._outside.leaves_out(instance):
            self._skip(instance, self._outside.look(instance))
        elif lost := self._lost.get(key.host):
            raise lost
        elif not self._contexts.holds(instance):
            self._recorder.step("skipped", key, reason="when is false")
            self._skip(instance, "when is false")
        else:
            self._done(instance, self._attempts.perform(instance))
        return True

    def _keep(self, instance: Instance) -> None:
        known = self._recorder.of(instance.key)
        self.verdicts[instance.key] = Verdict.KEPT
        if known.state is State.SKIPPED:
            self._tell(instance, Kind.STEP_SKIPPED, message=known.reason)
            return
        self._contexts.rendering.put(instance.key, known.outputs)
        self._tell(
            instance,
            Kind.STEP_DONE,
            state="unchanged",
            message="done before",
            data=known.outputs,
            seconds=0.0,
        )

    def _skip(self, instance: Instance, reason: str) -> None:
        self.verdicts[instance.key] = Verdict.SKIPPED
        self._barriers.excuse(instance.key.step, instance.label)
        self._tell(instance, Kind.STEP_SKIPPED, message=reason)

    def _done(self, instance: Instance, done: Done) -> None:
        self._contexts.rendering.put(instance.key, done.outputs)
        self.verdicts[instance.key] = Verdict.CHANGED if done.changed else Verdict.UNCHANGED
        self._tell(
            instance,
            Kind.STEP_DONE,
            state=self.verdicts[instance.key].value,
            data=done.outputs,
            seconds=done.seconds,
        )

    def _failed(self, instance: Instance, error: ColdSnapError) -> None:
        error.where = error.where or instance.label
        with self._lock:
            self.failures[instance.key] = error
            self.verdicts[instance.key] = Verdict.FAILED
            policy = instance.node.on_failure
            self.leave |= policy is OnFailure.STOP or error.code.startswith(_HANDS_OFF)
        self._withdraw(instance, error.message)
        self._tell(instance, Kind.STEP_FAILED, error=error, message=error.message)
        if policy is not OnFailure.CONTINUE or error.code.startswith("journal."):
            self.halt(f"{instance.key} failed")

    def _blocked(self, key: InstanceKey, root: InstanceKey) -> None:
        instance = self._expansion.by_key[key]
        reason = f"needs {root}, which failed"
        self.verdicts[key] = Verdict.BLOCKED
        self._withdraw(instance, reason)
        self._tell(instance, Kind.STEP_SKIPPED, state="blocked", message=reason)

    def _withdraw(self, instance: Instance, reason: str) -> None:
        self._barriers.withdraw(instance.key.step, instance.label, reason)

    def _tell(self, instance: Instance, kind: Kind, **fields: object) -> None:
        self._recorder.emit(kind, instance.key, type=instance.node.type, **fields)


def _crashed(instance: Instance, error: Exception) -> ColdSnapError:
    return ColdSnapError(
        "internal.engine",
        f"the engine has a fault: {type(error).__name__}: {error}",
        instance.label,
        remedy="report it",
        changed=True,
    )
