"""One instance during an apply: attempts with their time-out, retries, and what is journalled."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tenacity

from coldsnap.artifact import canonical
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.cancel import Stops
from coldsnap.engine.context import Contexts
from coldsnap.engine.crash import Crashes
from coldsnap.engine.events import Kind
from coldsnap.engine.freshness import Freshness
from coldsnap.engine.history import State
from coldsnap.engine.hosts import BoundHost
from coldsnap.engine.instances import Instance
from coldsnap.engine.lease import HeldLeases
from coldsnap.engine.recorder import Recorder
from coldsnap.engine.saved_change import change_from, change_json
from coldsnap.engine.timeouts import within
from coldsnap.sdk.change import Change
from coldsnap.sdk.host import JobEvent
from coldsnap.sdk.spec import Spec
from coldsnap.sdk.step import Outputs, Scope, Seen, StepContext

_NEVER_RETRIED = ("run.", "lease.", "internal.", "journal.", "plan.", "barrier.aborted")


@dataclass(frozen=True)
class Done:
    """How an instance ended well."""

    changed: bool
    outputs: Outputs
    seconds: float


class _Attempt:
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
        _seen, change, known = self._look(spec, ctx)
        if known is None and self._leased():
            # The run that held it before us may just have ended.
            _seen, change, known = self._look(spec, ctx, again=True)
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
    ) -> tuple[Seen, Change, Outputs | None]:
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
        return seen, change, known

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


class Attempts:
    """Runs instances; shared by all threads of a walk."""

    def __init__(
        self,
        contexts: Contexts,
        recorder: Recorder,
        leases: HeldLeases,
        crashes: Crashes,
        stops: Stops,
        freshness: Freshness,
        hang_grace: float,
    ) -> None:
        self.contexts, self.recorder = contexts, recorder
        self._leases, self._crashes = leases, crashes
        self._stops, self.freshness, self._hang_grace = stops, freshness, hang_grace

    def perform(self, instance: Instance) -> Done:
        """Bring an instance to its end, with the retries that its step allows.

        Raises:
            ColdSnapError: of the last attempt; already journalled.
        """
        retry = instance.node.retry
        tries = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(retry.attempts)
            | tenacity.stop_when_event_set(self._stops.halted),
            wait=lambda state: retry.wait_before(state.attempt_number + 1),
            retry=tenacity.retry_if_exception(_is_retryable),
            sleep=tenacity.sleep_using_event(self._stops.halted),
            before_sleep=lambda state: self._retrying(instance, state),
            reraise=True,
        )
        last: ColdSnapError | None = None
        for attempt in tries:
            number = attempt.retry_state.attempt_number
            with attempt:
                if last is not None and self._stops.halted.is_set():
                    raise last  # the run stopped during the wait
                try:
                    return self._bounded(instance, number, lambda tried: tried.run())
                except ColdSnapError as error:
                    last = error
                    raise
        raise AssertionError("tenacity ends by returning or raising")

    def settle(
        self, instance: Instance, spec: Mapping[str, Any], change: Mapping[str, Any]
    ) -> Done:
        """Finish what another process was cut off in, once, without looking anew.

        Raises:
            ColdSnapError: it cannot be finished that way; already journalled.
        """
        kind: type[Spec] = instance.step.spec
        typed = kind.model_validate(dict(spec))
        again = change_from(change)
        return self._bounded(instance, 1, lambda tried: tried.rerun(typed, again))

    def stands(self, instance: Instance, outputs: Outputs) -> bool:
        """Whether what an earlier process did is still there; in doubt it is not.

        A host that cannot be asked is no doubt: the walk will say what is wrong with it.
        """
        tried = _Attempt(self, instance, 1)
        step = instance.step
        try:
            with self._crashes.told(instance):
                ctx = tried.context(self.recorder.of(instance.key).redo)
                spec = self.contexts.spec(instance)
                if tried.host is not None:
                    tried.host.prefetch(step.reads(spec, ctx))
                return step.stands(spec, step.observe(spec, ctx), outputs, ctx)
        except ColdSnapError as error:
            return error.code == "host.unreachable"

    def bind(
        self, instance: Instance, deadline: float | None, emit: Callable[[JobEvent], None]
    ) -> BoundHost | None:
        host = self.contexts.host(instance)
        return BoundHost(host, deadline, emit, self._stops.cut) if host is not None else None

    def lease(self, instance: Instance) -> bool:
        host = self.contexts.host(instance)
        return host is not None and self._leases.hold(host, instance.key.unit)

    def _bounded(self, instance: Instance, number: int, work: Callable[[_Attempt], Done]) -> Done:
        """Do the work of one attempt within its time, and journal its failure."""
        tried = _Attempt(self, instance, number)
        timeout = instance.node.timeout
        try:
            with self._crashes.told(instance):
                if timeout is None:
                    return work(tried)
                limit = timeout + self._hang_grace
                return within(limit, lambda: work(tried), on_giving_up=tried.abandon)
        except ColdSnapError as error:
            error.where = error.where or instance.label
            touched = self.recorder.of(instance.key).state is State.APPLYING
            self.recorder.step(
                "failed",
                instance.key,
                error=error.to_json(),
                attempt=number,
                applying=touched,
                seconds=round(tried.seconds, 6),
            )
            raise

    def _retrying(self, instance: Instance, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        wait = state.next_action.sleep if state.next_action else 0.0
        self.recorder.emit(
            Kind.STEP_RETRY,
            instance.key,
            type=instance.step.type,
            message=f"again in {wait:g} s",
            attempt=state.attempt_number,
            error=error if isinstance(error, ColdSnapError) else None,
        )


def _is_retryable(error: BaseException) -> bool:
    """A refusal of the run itself (cancelled, lease held, plan wrong) does not get better."""
    return isinstance(error, ColdSnapError) and not error.code.startswith(_NEVER_RETRIED)
