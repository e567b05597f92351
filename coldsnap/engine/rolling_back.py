"""rollback: put back everything that a run changed."""

from __future__ import annotations

from coldsnap.engine.endings import announce, counts
from coldsnap.engine.outcome import RunResult, RunState
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


def rollback(setup: Setup, folder: RunFolder) -> RunResult:
    """Put back everything that a run changed, newest first; again is harmless.

    What cannot be put back (a host that is away) is among the result's errors, its state is
    ``partial``, and a later rollback tries it again.

    Raises:
        ColdSnapError: ``run.finished``, ``run.busy``, ``run.differs``, ``journal.tampered``.
    """
    with folder.locked():
        journal, history = reopened(folder)
        if history.state != RunState.ROLLED_BACK.value:
            refuse_closed(history, "rolled back")
        setup = as_recorded(setup, history)
        expansion = expansion_of(setup)
        same_instances(history, expansion)
        process = Process(
            setup, expansion, rendering_of(setup, expansion), folder, journal, history
        )
        if history.closed:
            return process.result(RunState.ROLLED_BACK, 0, (), counts(process), 0.0)
        # A host that is away keeps its changes for another rollback; the others are put back now.
        setup.fleet.connect(sorted({item.key.host for item in history.touched()} - {""}))
        process.recorder.write("run.rolling-back", who())
        announce(process, resumed=True)
        with process.working():
            recovery = process.recovery([item.key for item in history.touched()])
        errors = list(recovery.failures.values())
        left = {item.key for item in history.changed()} - set(recovery.irreversible)
        if setup.cancel.stage and left:
            state = RunState.CANCELLED
        else:
            state = RunState.PARTIAL if left or errors else RunState.ROLLED_BACK
        return process.finish(state, errors, counts(process))
