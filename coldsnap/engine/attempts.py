"""One instance during an apply: its attempts, each within its time-out, and its retries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tenacity

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.attempt import Attempt, Done
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
from coldsnap.engine.saved_change import change_from
from coldsnap.engine.timeouts import within
from coldsnap.sdk.host import JobEvent
from coldsnap.sdk.spec import Spec
from coldsnap.sdk.step import Outputs

_NEVER_RETRIED = ("run.", "lease.", "internal.", "journal.", "plan.", "barrier.aborted")


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
        tried = Attempt(self, instance, 1)
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

    def _bounded(self, instance: Instance, number: int, work: Callable[[Attempt], Done]) -> Done:
        """Do the work of one attempt within its time, and journal its failure."""
        tried = Attempt(self, instance, number)
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
