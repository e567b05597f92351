"""apply: carry a plan out as a new run."""

from __future__ import annotations

from coldsnap.engine.endings import announce, connect, ended, undo
from coldsnap.engine.history import fold
from coldsnap.engine.journal import Journal
from coldsnap.engine.outcome import RunResult
from coldsnap.engine.process import Process
from coldsnap.engine.recorded import header
from coldsnap.engine.runs import Runs
from coldsnap.engine.saved import SavedPlan
from coldsnap.engine.setup import Setup
from coldsnap.engine.surveying import check_fresh, expansion_of, rendering_of


def apply(setup: Setup, saved: SavedPlan | None = None) -> RunResult:
    """Carry a plan out as a new run.

    Args:
        setup: plan, hosts and the rest.
        saved: the saved plan that `setup.plan` was loaded from; it is checked first.

    Raises:
        ColdSnapError: before anything is changed: ``plan.stale``, ``plan.no-place``,
            ``host.unreachable`` (with all unreachable hosts), ``file.*`` when the run's folder
            cannot be made. What fails later is in the result.
    """
    if saved is not None:
        check_fresh(setup, saved)
    expansion = expansion_of(setup)
    lost = connect(setup, expansion)
    setup.fleet.forget(expansion.hosts)
    folder = Runs(setup.project).create()
    with folder.locked():
        journal = Journal.create(folder.journal)
        first = journal.append("run.header", header(setup, folder, expansion, saved))
        process = Process(
            setup, expansion, rendering_of(setup, expansion), folder, journal, fold([first])
        )
        announce(process, resumed=False)
        with process.working() as attempts:
            walk = process.walk(attempts, lost=lost)
            errors = undo(process, walk)
        return ended(process, walk, errors)
