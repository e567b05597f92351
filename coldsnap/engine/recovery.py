"""Putting back what a run changed: `recover` of each touched instance, dependents first."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.cancel import Stops
from coldsnap.engine.context import Contexts
from coldsnap.engine.crash import Crashes
from coldsnap.engine.events import Kind
from coldsnap.engine.history import InstanceHistory
from coldsnap.engine.hosts import BoundHost
from coldsnap.engine.instances import Expansion, Instance
from coldsnap.engine.jobs import JobEnder
from coldsnap.engine.lease import HeldLeases
from coldsnap.engine.preview import InstanceKey
from coldsnap.engine.recorder import Recorder
from coldsnap.engine.schedule import Schedule
from coldsnap.engine.setup import Limits
from coldsnap.sdk.spec import Spec
from coldsnap.sdk.step import Scope

DEADLINE = 600.0
"""Seconds for one `recover` of a step that has no time-out of its own."""


class Recovery:
    """Runs once; what could not be put back is in `failures` and `irreversible`."""

    def __init__(
        self,
        expansion: Expansion,
        contexts: Contexts,
        recorder: Recorder,
        leases: HeldLeases,
        jobs: JobEnder,
        crashes: Crashes,
        stops: Stops,
        limits: Limits,
    ) -> None:
        self._expansion, self._contexts, self._recorder = expansion, contexts, recorder
        self._leases, self._jobs, self._crashes = leases, jobs, crashes
        self._stops, self._limits = stops, limits
        self._lock = threading.Lock()
        self.recovered: list[InstanceKey] = []
        self.irreversible: list[InstanceKey] = []
        self.failures: dict[InstanceKey, ColdSnapError] = {}
        self._schedule = Schedule({}, limits)

    def prepare(self, wanted: Collection[InstanceKey]) -> Schedule:
        """Say what is to be put back."""
        self._schedule = Schedule(reversed_needs(self._expansion, wanted), self._limits)
        return self._schedule

    def run(self) -> None:
        """Put it back; what fails is noted and the others go on."""
        self._schedule.run(self._visit, lambda _key, _root: None)

    def _visit(self, key: InstanceKey) -> bool:
        instance = self._expansion.by_key[key]
        try:
            with self._crashes.told(instance):
                self._put_back(instance, self._recorder.of(key))
        except ColdSnapError as error:
            self._failed(instance, error)
        return True

    def _put_back(self, instance: Instance, known: InstanceHistory) -> None:
        key, step = instance.key, instance.step
        if not step.reversible:
            with self._lock:
                self.irreversible.append(key)
            self._recorder.step("irreversible", key)
            self._tell(instance, Kind.STEP_SKIPPED, message="cannot be undone; left as it is")
            return
        started = time.monotonic()
        self._recorder.step("recovering", key)
        self._tell(instance, Kind.STEP_RECOVERING, message=f"putting back {step.type}")
        limit = instance.node.timeout or DEADLINE
        host = self._contexts.host(instance)
        if host is not None and not step.read_only and step.scope is Scope.UNIT:
            self._leases.hold(host, key.unit)
        if host is not None and known.job:
            self._jobs.end(host, known.job)
        bound = None
        if host is not None:
            bound = BoundHost(host, started + limit, lambda _event: None, self._stops.cut)
        ctx = self._contexts.for_apply(
            instance, bound, emit=lambda _event: None, deadline=limit, redo=known.redo
        )
        kind: type[Spec] = step.spec
        step.recover(kind.model_validate(dict(known.spec)), known.seen or {}, ctx)
        self._recorder.step("recovered", key)
        with self._lock:
            self.recovered.append(key)
        self._tell(instance, Kind.STEP_RECOVERED, seconds=time.monotonic() - started)

    def _failed(self, instance: Instance, error: ColdSnapError) -> None:
        error.where = error.where or instance.label
        error.changed = True
        with self._lock:
            self.failures[instance.key] = error
        try:
            self._recorder.step("recover-failed", instance.key, error=error.to_json())
        except ColdSnapError as unwritable:
            error.more = (*error.more, unwritable)
        self._tell(instance, Kind.STEP_FAILED, state="recover", error=error, message=error.message)

    def _tell(self, instance: Instance, kind: Kind, **fields: object) -> None:
        self._recorder.emit(kind, instance.key, type=instance.node.type, **fields)


def reversed_needs(
    expansion: Expansion, wanted: Collection[InstanceKey]
) -> Mapping[InstanceKey, tuple[InstanceKey, ...]]:
    """For each wanted instance the wanted ones that must be put back before it.

    Instances in between that are not wanted pass the order on.
    """
    chosen = set(wanted)
    nearest: dict[InstanceKey, frozenset[InstanceKey]] = {}
    before: dict[InstanceKey, set[InstanceKey]] = {key: set() for key in chosen}
    for instance in expansion:
        above: set[InstanceKey] = set()
        for need in instance.needs:
            above |= {need} if need in chosen else nearest[need]
        nearest[instance.key] = frozenset(above)
        if instance.key in chosen:
            for need in above:
                before[need].add(instance.key)
    return {key: tuple(sorted(keys)) for key, keys in before.items()}


def paused_for_nothing(
    expansion: Expansion, touched: Collection[InstanceHistory], finished: Collection[InstanceKey]
) -> list[InstanceKey]:
    """Touched instances that pause serving, and what needs them did not all get done."""
    done = set(finished)
    dependents: dict[InstanceKey, list[InstanceKey]] = {}
    for instance in expansion:
        for need in instance.needs:
            dependents.setdefault(need, []).append(instance.key)
    return [
        item.key
        for item in touched
        if item.change.get("pauses_serving")
        and (item.key not in done or _unfinished(item.key, dependents, done))
    ]


def _unfinished(
    key: InstanceKey, dependents: Mapping[InstanceKey, list[InstanceKey]], done: set[InstanceKey]
) -> bool:
    pending, seen = list(dependents.get(key, ())), set()
    while pending:
        other = pending.pop()
        if other in seen:
            continue
        seen.add(other)
        if other not in done:
            return True
        pending += dependents.get(other, ())
    return False
