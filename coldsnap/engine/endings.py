"""The beginning and the end that apply, resume and rollback have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.events import Kind
from coldsnap.engine.history import State
from coldsnap.engine.instances import Expansion
from coldsnap.engine.outcome import RunResult, state_of
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
    """After a walk that did not end well: put back what its policies say."""
    errors = [*walk.refusals, *walk.failures.values()]
    history = process.recorder.history
    if walk.given_up or walk.leave or process.stops.cut.is_set():
        return errors
    if walk.wants_recovery():
        wanted = [item.key for item in history.touched()]
    elif len([v for v in walk.verdicts.values() if v in _GOOD]) < len(process.expansion):
        finished = [key for key, verdict in walk.verdicts.items() if verdict in _GOOD]
        wanted = paused_for_nothing(process.expansion, history.touched(), finished)
    else:
        wanted = []
    if wanted:
        errors += process.recovery(wanted).failures.values()
    return errors


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
