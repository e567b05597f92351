"""resume: go on with a run after its last good step."""

from __future__ import annotations

from collections.abc import Mapping

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
            _settle(process, attempts, lost)
            for key, known in history.instances.items():
                if known.state in (State.DONE, State.UNCHANGED):
                    process.rendering.put(key, known.outputs)
            walk = process.walk(attempts, kept=_kept(process), lost=lost)
            errors = undo(process, walk)
        return ended(process, walk, errors)


def _settle(process: Process, attempts: Attempts, lost: Mapping[str, ColdSnapError]) -> None:
    """Finish what the earlier process was cut off in.

    A change in flight is applied again as it was, under the same job: the runtime gives back the
    result of a job that went on without us. An interrupted recovery is done again. What cannot be
    finished this way is brought up by the walk like anything else.
    """
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
        except ColdSnapError as error:
            process.recorder.emit(Kind.STEP_RETRY, key, type=known.type, error=error)
        return True

    # A barrier in flight is met anew in the walk, together with those that had not arrived.
    flying = [item.key for item in cut if _is_settled_by_job(process, item)]
    if flying:
        process.side_phase(flying, again)


def _is_settled_by_job(process: Process, item: InstanceHistory) -> bool:
    read_only = process.expansion.by_key[item.key].step.read_only
    return item.state is State.APPLYING and not read_only


def _kept(process: Process) -> frozenset[InstanceKey]:
    """Finished instances that nothing unfinished needs any more: not even looked at again.

    The others are observed again, and done again if their effect is gone (a host that rebooted,
    a pause that its watchdog ended).
    """
    known = process.recorder.history.instances
    selected = process.setup.selected
    finished = {key for key, item in known.items() if item.state in _FINISHED}
    needed = {
        need
        for instance in process.expansion
        if instance.key not in finished and (selected is None or instance.key.step in selected)
        for need in instance.needs
    }
    return frozenset(finished - needed)
