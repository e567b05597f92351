"""One process that works on a run: everything that apply, resume and rollback share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.attempts import Attempts
from coldsnap.engine.barrier import Barriers
from coldsnap.engine.cancel import Stops
from coldsnap.engine.context import Contexts
from coldsnap.engine.crash import Crashes
from coldsnap.engine.events import Kind
from coldsnap.engine.freshness import Freshness
from coldsnap.engine.heartbeat import Heartbeats
from coldsnap.engine.history import History
from coldsnap.engine.instances import Expansion
from coldsnap.engine.jobs import TargetJobs
from coldsnap.engine.journal import Journal
from coldsnap.engine.lease import HeldLeases, TargetLeases
from coldsnap.engine.lookahead import LookAhead
from coldsnap.engine.outcome import RunResult, RunState, exit_code_of, root_causes, unsealed
from coldsnap.engine.outside import Outside
from coldsnap.engine.preview import InstanceKey
from coldsnap.engine.receipts import write_receipts
from coldsnap.engine.recorder import Recorder
from coldsnap.engine.recovery import Recovery
from coldsnap.engine.rendering import Rendering
from coldsnap.engine.runs import RunFolder
from coldsnap.engine.schedule import Schedule
from coldsnap.engine.setup import Setup
from coldsnap.engine.walk import Walk

_CUT_AGAIN = 0.2
"""Seconds."""


class Process:
    """Wires the parts together; `working` is the frame in which hosts are changed."""

    def __init__(
        self,
        setup: Setup,
        expansion: Expansion,
        rendering: Rendering,
        folder: RunFolder,
        journal: Journal,
        history: History,
    ) -> None:
        self.setup, self.expansion, self.rendering = setup, expansion, rendering
        self.folder, self.journal = folder, journal
        self.recorder = Recorder(journal, history, setup.sink)
        self.stops = Stops()
        self.barriers = Barriers()
        self.crashes = Crashes(folder.path)
        self.contexts = Contexts(
            setup,
            expansion,
            rendering,
            run=folder.id,
            barriers=self.barriers,
            parked=self._parked,
        )
        self.freshness = Freshness(setup.fleet)
        self._schedule = Schedule({}, setup.limits)
        self._started = time.monotonic()
        self._walk: Walk | None = None
        self._leases: HeldLeases | None = None

    @contextmanager
    def working(self) -> Iterator[Attempts]:
        """Leases are held and renewed, cancels obeyed, heartbeats sent."""
        setup, recorder = self.setup, self.recorder
        types = {instance.key: instance.node.type for instance in self.expansion}
        with ExitStack() as stack:
            leases = stack.enter_context(
                HeldLeases(
                    setup.leases or TargetLeases(setup.runtime),
                    recorder.run,
                    on_lost=self._refuse,
                    record=recorder.write,
                    ttl=setup.limits.lease_ttl,
                )
            )
            every = setup.limits.heartbeat
            stack.enter_context(Heartbeats(recorder, self._running, types, every))
            stack.enter_context(setup.cancel.watch(self._on_cancel))
            self._leases = leases
            yield Attempts(
                self.contexts,
                recorder,
                leases,
                self.crashes,
                self.stops,
                self.freshness,
                setup.limits.hang_grace,
            )

    def walk(
        self,
        attempts: Attempts,
        kept: frozenset[InstanceKey] = frozenset(),
        lost: Mapping[str, ColdSnapError] | None = None,
    ) -> Walk:
        """Bring every instance to its end."""
        outside = Outside(self.contexts, self.setup.selected)
        unreachable = lost or {}
        LookAhead(
            self.expansion,
            self.contexts,
            self.setup.fleet,
            lambda instance: (
                instance.key in kept
                or instance.key.host in unreachable
                or outside.leaves_out(instance)
            ),
        ).fetch_all()
        self.freshness.begin()
        needs = {instance.key: instance.needs for instance in self.expansion}
        self._schedule = Schedule(needs, self.setup.limits)
        walk = self._walk = Walk(
            self.expansion,
            self.contexts,
            attempts,
            self.recorder,
            self._schedule,
            self.barriers,
            outside,
            self.stops.halted,
            kept=kept,
            lost=lost,
        )
        if self.stops.halted.is_set():  # cancelled while earlier phases ran
            walk.halt("the run is cancelled")
        walk.run()
        return walk

    def side_phase(self, keys: list[InstanceKey], work: Callable[[InstanceKey], bool]) -> None:
        """Do something with some instances at once, whatever their order, before the walk."""
        self._schedule = Schedule(dict.fromkeys(keys, ()), self.setup.limits)
        if self.stops.halted.is_set():
            self._schedule.halt()
        self._schedule.run(work, lambda _key, _root: None)

    def recovery(self, wanted: list[InstanceKey], *, after_cut: bool = False) -> Recovery:
        """Put back these instances, dependents first; call it inside `working`.

        `after_cut`: although the run was cut off.
        """
        assert self._leases is not None  # noqa: S101 - `working` set it
        recovery = Recovery(
            self.expansion,
            self.contexts,
            self.recorder,
            self._leases,
            self.setup.jobs or TargetJobs(self.setup.runtime),
            self.crashes,
            Stops() if after_cut else self.stops,
            self.setup.limits,
        )
        self._schedule = recovery.prepare(wanted)
        recovery.run()
        return recovery

    def finish(
        self, state: RunState, errors: list[ColdSnapError], counts: Mapping[str, int]
    ) -> RunResult:
        """Close or stop the run's journal, tell the watcher, and make the result."""
        exit_code = exit_code_of(state, self.setup.cancel.exit_code)
        causes = root_causes(errors)
        seconds = round(time.monotonic() - self._started, 6)
        body = {
            "state": state.value,
            "exit_code": exit_code,
            "counts": dict(counts),
            "errors": [error.to_json() for error in causes],
            "seconds": seconds,
        }
        try:
            self.recorder.write("run.closed" if state.is_final else "run.stopped", body)
        except ColdSnapError as unwritable:
            if unwritable.code not in {cause.code for cause in causes}:  # told already
                causes = (*causes, unwritable)
            state, exit_code = unsealed(state, exit_code, changed=counts["changed"] > 0)
        result = self.result(state, exit_code, causes, counts, seconds)
        try:
            write_receipts(self.setup.plan, self.folder, self.recorder.history, result)
        except ColdSnapError as unwritable:
            result = replace(result, errors=(*result.errors, unwritable))
        self.recorder.emit(
            Kind.RUN_FINISHED,
            state=state.value,
            seconds=result.seconds,
            error=result.error,
            data={"exit_code": exit_code, "counts": dict(counts), "folder": result.folder},
        )
        return result

    def result(
        self,
        state: RunState,
        exit_code: int,
        errors: tuple[ColdSnapError, ...],
        counts: Mapping[str, int],
        seconds: float,
    ) -> RunResult:
        return RunResult(
            run=self.folder.id,
            state=state,
            exit_code=exit_code,
            errors=errors,
            seconds=seconds,
            outputs=outputs_of(self.recorder.history),
            folder=str(self.folder.path),
            **counts,
        )

    # Both ask for the schedule anew: each phase has its own.

    def _parked(self, host: str) -> AbstractContextManager[None]:
        return self._schedule.parked(host)

    def _running(self) -> list[tuple[InstanceKey, float]]:
        return self._schedule.running()

    def _on_cancel(self, stage: int) -> None:
        running = [str(key) for key, _since in self._schedule.running()]
        self.stops.halted.set()
        with suppress(ColdSnapError):  # a journal that cannot be written must not stop a cancel
            self.recorder.write("run.cancelling", {"stage": stage, "running": running})
        self.recorder.emit(Kind.CANCELLING, state=str(stage), message=_cancel_text(stage, running))
        if self._walk is not None:
            self._walk.halt("the run is cancelled")
        if stage > 1:
            schedule = self._schedule  # what is put back afterwards has another
            self.stops.cut.set()
            schedule.halt()
            schedule.give_up()
            # More than once: an operation may just have been about to begin.
            while schedule.is_running:
                self.setup.fleet.cancel()
                time.sleep(_CUT_AGAIN)

    def _refuse(self, error: ColdSnapError) -> None:
        self.stops.halted.set()
        if self._walk is not None:
            self._walk.refuse(error)


def _cancel_text(stage: int, running: list[str]) -> str:
    if stage > 1:
        return f"cutting off {', '.join(running)}" if running else "stopping at once"
    if running:
        return f"finishing {', '.join(running)}, nothing more starts; Ctrl-C again cuts it off"
    return "nothing more starts"


def outputs_of(history: History) -> dict[str, Any]:
    """Step -> list of {host, unit, outputs}, for results and receipts."""
    found: dict[str, Any] = {}
    for key, instance in sorted(history.instances.items()):
        if instance.outputs:
            row = {"host": key.host, "unit": key.unit, "outputs": dict(instance.outputs)}
            found.setdefault(key.step, []).append(row)
    return found
