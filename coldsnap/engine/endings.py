"""The beginning and the end that apply, resume and rollback have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.events import Kind
from coldsnap.engine.history import State
from coldsnap.engine.instances import Expansion
from coldsnap.engine.outcome import RunResult, state_of
from coldsnap.engine.preview import InstanceKey
from coldsnap.engine.process import Process
from coldsnap.engine.recovery import paused_for_nothing
from coldsnap.engine.setup import Setup
from coldsnap.engine.walk import Verdict, Walk
from coldsnap.plan.model import OnFailure

_GOOD = (Verdict.CHANGED, Verdict.UNCHANGED, Verdict.KEPT, Verdict.SKIPPED)


def announce(process: Process, *, resumed: bool) -> None:
    """Tell the watcher that work on the run begins."""
    process.recorder.emit(
        Kind.RUN_STARTED,
        message=process.setup.plan.name,
        data={
            "instances": len(process.expansion),
            "hosts": list(process.expansion.hosts),
            "resumed": resumed,
            "folder": str(process.folder.path),
        },
    )


def connect(setup: Setup, expansion: Expansion) -> Mapping[str, ColdSnapError]:
    """Connect every host; those that only `continue` steps run on may be missing.

    Raises:
        ColdSnapError: ``host.unreachable``, before anything is changed.
    """
    lost = setup.fleet.connect(expansion.hosts) if expansion.hosts else {}
    fatal = {
        instance.key.host
        for instance in expansion
        if instance.key.host in lost and instance.node.on_failure is not OnFailure.CONTINUE
    }
    errors = [error for host, error in lost.items() if host in fatal]
    if errors:
        first, *others = errors
        first.more = (*first.more, *others)
        raise first
    return lost


def undo(process: Process, walk: Walk) -> list[ColdSnapError]:
    """After a walk that did not end well: put back what its policies say.

    Who cuts off wants the end at once, and yet no service left paused: that is put back even then.
    """
    errors = [*walk.refusals, *walk.failures.values()]
    if walk.given_up or walk.leave:
        return errors
    failures: dict[InstanceKey, ColdSnapError] = {}
    if not process.stops.cut.is_set():
        failures |= _put_back(process, _wanted(process, walk))
    if process.stops.cut.is_set():
        paused = _paused(process, walk)
        for key in paused:
            failures.pop(key, None)  # the same was tried and cut off a moment ago
        failures |= _put_back(process, paused, after_cut=True)
    return [*errors, *failures.values()]


def _put_back(
    process: Process, wanted: list[InstanceKey], *, after_cut: bool = False
) -> Mapping[InstanceKey, ColdSnapError]:
    return process.recovery(wanted, after_cut=after_cut).failures if wanted else {}


def _wanted(process: Process, walk: Walk) -> list[InstanceKey]:
    if walk.wants_recovery():
        return [item.key for item in process.recorder.history.touched()]
    return _paused(process, walk)


def _paused(process: Process, walk: Walk) -> list[InstanceKey]:
    finished = [key for key, verdict in walk.verdicts.items() if verdict in _GOOD]
    if len(finished) == len(process.expansion):
        return []
    return paused_for_nothing(process.expansion, process.recorder.history.touched(), finished)


def ended(process: Process, walk: Walk, errors: list[ColdSnapError]) -> RunResult:
    """Decide how the run ended, and say it."""
    history = process.recorder.history
    finished = sum(verdict in _GOOD for verdict in walk.verdicts.values())
    state = state_of(
        failed=bool(errors),
        cancelled=bool(process.setup.cancel.stage) and finished < len(process.expansion),
        changed=bool(history.changed()),
        recovered=any(item.state is State.RECOVERED for item in history.instances.values()),
    )
    return process.finish(state, errors, counts(process, walk))


def counts(process: Process, walk: Walk | None = None) -> dict[str, int]:
    """Numbers of instances by how they ended: the fields of `RunResult`."""
    history = process.recorder.history
    states = Counter(item.state for item in history.instances.values())
    verdicts = Counter(walk.verdicts.values()) if walk else Counter[Verdict]()
    return {
        "changed": len(history.changed()),
        "unchanged": states[State.UNCHANGED],
        "failed": len(walk.failures) if walk else states[State.FAILED],
        "skipped": verdicts[Verdict.SKIPPED] + verdicts[Verdict.BLOCKED],
        "recovered": states[State.RECOVERED],
    }
