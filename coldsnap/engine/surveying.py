"""preview: what `plan diff` finds."""

from __future__ import annotations

from coldsnap.engine.context import Contexts
from coldsnap.engine.instances import Expansion, expand
from coldsnap.engine.outside import Outside
from coldsnap.engine.preview import Preview
from coldsnap.engine.rendering import Rendering
from coldsnap.engine.saved import SavedPlan, compare, stale
from coldsnap.engine.setup import Setup
from coldsnap.engine.survey import Survey
from coldsnap.graph.dag import StepGraph


def preview(setup: Setup) -> Preview:
    """Observe and diff every instance; nothing is changed.

    Unreachable hosts and steps that cannot be done are in the preview, not raised.

    Raises:
        ColdSnapError: ``inventory.unknown-host``, ``plan.no-place``, ``run.cancelled``.
    """
    expansion = expansion_of(setup)
    unreachable = dict(setup.fleet.connect(expansion.hosts)) if expansion.hosts else {}
    setup.fleet.forget(expansion.hosts)
    contexts = Contexts(setup, expansion, rendering_of(setup, expansion))
    survey = Survey(
        expansion,
        contexts,
        Outside(contexts, setup.selected),
        setup.fleet,
        setup.cancel,
        frozenset(unreachable),
    )
    with setup.cancel.watch(lambda _stage: setup.fleet.cancel()):
        instances = survey.run()
    plan = setup.plan
    return Preview(
        plan_name=plan.name,
        plan_path=plan.path,
        plan_sha256=plan.document_sha256,
        request_sha256=plan.request_sha256,
        run="",
        instances=tuple(instances),
        unreachable=unreachable,
    )


def expansion_of(setup: Setup) -> Expansion:
    """All instances of the plan, on the hosts of the inventory; raises as `expand`."""
    order = StepGraph.of(setup.plan).order
    return expand(setup.plan, order, setup.registry.steps, setup.fleet)


def rendering_of(setup: Setup, expansion: Expansion) -> Rendering:
    """Fills in the plan's expressions, for one preview or one walk."""
    return Rendering(setup, expansion)


def check_fresh(setup: Setup, saved: SavedPlan) -> None:
    """Look again and refuse when anything differs from what was reviewed.

    Raises:
        ColdSnapError: ``plan.stale``, saying what changed.
    """
    if lines := compare(saved, setup, preview(setup)):
        raise stale(saved, lines)
