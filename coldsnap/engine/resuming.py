"""resume: go on with a run after its last good step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.attempts import Attempts
from coldsnap.engine.endings import announce, connect, ended, undo
from coldsnap.engine.events import Kind
from coldsnap.engine.history import InstanceHistory, State
from coldsnap.engine.outcome import RunResult
from coldsnap.engine.preview import InstanceKey
from coldsnap.engine.process import Process
from coldsnap.engine.recorded import (
    as_recorded,
    refuse_closed,
    reopened,
    same_instances,
    who,
)
from coldsnap.engine.runs import RunFolder
from coldsnap.engine.setup import Setup
from coldsnap.engine.surveying import expansion_of, rendering_of

_FINISHED = (State.DONE, State.UNCHANGED, State.SKIPPED)


def resume(setup: Setup, folder: RunFolder) -> RunResult:
    """Go on with a run after its last good step, also after `kill -9` or a reboot.

    `setup` must hold the run's own plan (`stored_plan`) with the variables it had.

    Raises:
        ColdSnapError: ``run.finished``, ``run.rolled-back``, ``run.busy``, ``run.differs``,
            ``journal.tampered``, ``host.unreachable``.
    """
    with folder.locked():
        journal, history = reopened(folder)
        refuse_closed(history, "resumed")
        setup = as_recorded(setup, history)
        expansion = expansion_of(setup)
        same_instances(history, expansion)
        lost = connect(setup, expansion)
        setup.fleet.forget(expansion.hosts)
        process = Process(
            setup, expansion, rendering_of(setup, expansion), folder, journal, history
        )
        process.recorder.write("run.resumed", who())
        announce(process, resumed=True)
        with process.working() as attempts:
            settled = _settle(process, attempts, lost)
            for key, known in history.instances.items():
                if known.state in (State.DONE, State.UNCHANGED):
                    process.rendering.put(key, known.outputs)
            walk = process.walk(
                attempts, kept=_Looked(process, attempts, settled).kept(), lost=lost
            )
            errors = undo(process, walk)
        return ended(process, walk, errors)


def _settle(
    process: Process, attempts: Attempts, lost: Mapping[str, ColdSnapError]
) -> set[InstanceKey]:
    """Finish what the earlier process was cut off in.

    A change in flight is applied again as it was, under the same job: the runtime gives back the
    result of a job that went on without us. An interrupted recovery is done again. What cannot be
    finished this way is brought up by the walk like anything else.

    Returns:
        What was finished just now.
    """
    settled: set[InstanceKey] = set()
    history = process.recorder.history
    cut = [
        item
        for item in history.instances.values()
        if item.state in (State.APPLYING, State.RECOVERING) and item.key.host not in lost
    ]
    recovering = [item.key for item in cut if item.state is State.RECOVERING]
    if recovering:
        process.recovery(recovering)

    def again(key: InstanceKey) -> bool:
        known = process.recorder.of(key)
        try:
            attempts.settle(process.expansion.by_key[key], known.spec, known.change)
            settled.add(key)
        except ColdSnapError as error:
            process.recorder.emit(Kind.STEP_RETRY, key, type=known.type, error=error)
        return True

    # A barrier in flight is met anew in the walk, together with those that had not arrived.
    flying = [item.key for item in cut if _is_settled_by_job(process, item)]
    if flying:
        process.side_phase(flying, again)
    return settled


def _is_settled_by_job(process: Process, item: InstanceHistory) -> bool:
    read_only = process.expansion.by_key[item.key].step.read_only
    return item.state is State.APPLYING and not read_only


class _Looked:
    """Which finished instances can stay as they are: looked at from the unfinished ones up.

    What nothing unfinished needs is not even looked at (who would pause a service again that was
    dumped already?). What does not stand any more (a host that rebooted, a pause that its
    watchdog ended) is done again, after its own needs were looked at in the same way.
    """

    def __init__(self, process: Process, attempts: Attempts, settled: set[InstanceKey]) -> None:
        self._process, self._attempts, self._settled = process, attempts, settled
        known = process.recorder.history.instances
        self._finished = {key for key, item in known.items() if item.state in _FINISHED}
        self._gone: set[InstanceKey] = set()

    def kept(self) -> frozenset[InstanceKey]:
        selected = self._process.setup.selected
        unfinished = [
            instance.key
            for instance in self._process.expansion
            if instance.key not in self._finished
            and (selected is None or instance.key.step in selected)
        ]
        seen: set[InstanceKey] = set()
        while wave := self._needs_of(unfinished) - seen:
            seen |= wave
            before = set(self._gone)
            self._process.side_phase(sorted(wave), self._look)
            unfinished = sorted(self._gone - before)
        return frozenset(self._finished - self._gone)

    def _needs_of(self, keys: Iterable[InstanceKey]) -> set[InstanceKey]:
        by_key = self._process.expansion.by_key
        return {need for key in keys for need in by_key[key].needs if need in self._finished}

    def _look(self, key: InstanceKey) -> bool:
        known = self._process.recorder.of(key)
        instance = self._process.expansion.by_key[key]
        if key in self._settled:
            return True
        if known.state is State.SKIPPED or not self._attempts.stands(instance, known.outputs):
            self._gone.add(key)
        return True
