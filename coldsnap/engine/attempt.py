"""One try of an instance: look, take the lease, change; all of it journalled."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coldsnap.artifact import canonical
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.events import Kind
from coldsnap.engine.instances import Instance
from coldsnap.engine.saved_change import change_json
from coldsnap.sdk.change import Change
from coldsnap.sdk.host import JobEvent
from coldsnap.sdk.spec import Spec
from coldsnap.sdk.step import Outputs, Scope, StepContext

if TYPE_CHECKING:
    from coldsnap.engine.attempts import Attempts


@dataclass(frozen=True)
class Done:
    """How an instance ended well."""

    changed: bool
    outputs: Outputs
    seconds: float


class Attempt:
    """One try.

    After its time-out it may still run in a thread that nobody waits for; then `abandoned` keeps
    it from writing.
    """

    def __init__(self, owner: Attempts, instance: Instance, number: int) -> None:
        self._owner = owner
        self._instance = instance
        self._started = time.monotonic()
        self._timeout = instance.node.timeout
        self.abandoned = False
        deadline = None if self._timeout is None else self._started + self._timeout
        self.host = owner.bind(instance, deadline, self._progress)
        self.number = number

    def context(self, redo: int) -> StepContext:
        return self._owner.contexts.for_apply(
            self._instance,
            self.host,
            emit=self._progress,
            attempt=self.number,
            deadline=self._timeout,
            redo=redo,
        )

    def abandon(self) -> None:
        self.abandoned = True

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def record(self, kind: str, **body: Any) -> None:
        if self.abandoned:
            raise ColdSnapError("step.timeout", "this attempt was given up", self._instance.label)
        self._owner.recorder.step(kind, self._instance.key, **body)

    def run(self) -> Done:
        """Render, observe, diff, and apply what is pending."""
        instance, recorder = self._instance, self._owner.recorder
        redo = recorder.of(instance.key).next_redo
        ctx = self.context(redo)
        spec = self._owner.contexts.spec(instance)
        change, known = self._look(spec, ctx)
        if known is None and self._leased():
            # The run that held it before us may just have ended.
            change, known = self._look(spec, ctx, again=True)
        if known is not None:
            return self._end(changed=False, outputs=known)
        return self._end(changed=True, outputs=self._apply(spec, change, ctx))

    def rerun(self, spec: Spec, change: Change) -> Done:
        """Apply the very change that an earlier process was cut off in, as the same job."""
        ctx = self.context(self._owner.recorder.of(self._instance.key).redo)
        self._leased()
        return self._end(changed=True, outputs=self._apply(spec, change, ctx))

    def _look(
        self, spec: Spec, ctx: StepContext, *, again: bool = False
    ) -> tuple[Change, Outputs | None]:
        step = self._instance.step
        if self.host is not None:
            self._owner.freshness.ask(self.host.name, again=again or self.number > 1)
            self.host.prefetch(step.reads(spec, ctx))
        seen = step.observe(spec, ctx)
        self.record("observed", type=step.type, seen=seen, seen_sha256=canonical.digest(seen))
        self._owner.recorder.emit(
            Kind.STEP_OBSERVED, self._instance.key, type=step.type, data=seen, attempt=self.number
        )
        change = step.diff(spec, seen, ctx)
        known = None if change.is_pending else step.known(spec, seen, ctx)
        if self.host is not None:
            self.host.forget()
        return change, known

    def _leased(self) -> bool:
        """Take the unit's lease if this instance changes the unit; True if taken just now."""
        instance = self._instance
        if instance.step.read_only or instance.step.scope is not Scope.UNIT:
            return False
        return self._owner.lease(instance)

    def _apply(self, spec: Spec, change: Change, ctx: StepContext) -> Outputs:
        instance = self._instance
        self.record(
            "changing",
            type=instance.step.type,
            spec=spec.model_dump(mode="json"),
            change=change_json(change),
            job=ctx.job,
            redo=ctx.redo,
            read_only=instance.step.read_only,
            attempt=self.number,
        )
        self._owner.recorder.emit(
            Kind.STEP_STARTED,
            instance.key,
            type=instance.step.type,
            message=change.summary,
            attempt=self.number,
        )
        return instance.step.apply(spec, change, ctx)

    def _end(self, *, changed: bool, outputs: Outputs) -> Done:
        declared = self._instance.step.outputs
        kept = {name: outputs[name] for name in declared if name in outputs}
        seconds = self.seconds
        state = "changed" if changed else "unchanged"
        try:
            self.record("done", state=state, outputs=kept, seconds=round(seconds, 6))
        except ColdSnapError as error:
            error.changed = error.changed or changed
            raise
        return Done(changed, kept, seconds)

    def _progress(self, event: JobEvent) -> None:
        if self.abandoned:
            return
        self._owner.recorder.emit(
            Kind.STEP_PROGRESS,
            self._instance.key,
            type=self._instance.step.type,
            state=event.kind,
            message=event.message,
            done=event.done,
            total=event.total,
            unit=event.unit,
            seconds=self.seconds,
            attempt=self.number,
        )
