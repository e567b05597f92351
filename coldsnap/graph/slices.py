"""Slices of a plan: ``--only``, ``--from``, ``--until``.

``only A``: A and nothing else. ``from A``: A and all that needs it. ``until A``: A and all that it
needs. Together they intersect; several names of one kind are united. The id of a template use
stands for all its steps. What a slice leaves out is taken as done: its outputs come from the
journal, or from what its steps observe.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.graph.dag import StepGraph
from coldsnap.plan.model import Plan
from coldsnap.plan.problems import Problems, hint, shown


@dataclass(frozen=True)
class Slice:
    """What the flags ask for; all empty means the whole plan."""

    only: Sequence[str] = ()
    start: Sequence[str] = ()
    """``--from``"""
    until: Sequence[str] = ()

    @property
    def is_whole(self) -> bool:
        return not (self.only or self.start or self.until)


def select(plan: Plan, graph: StepGraph, chosen: Slice) -> tuple[str, ...]:
    """Ids of the steps in the slice, needed ones first.

    Raises:
        ColdSnapError: ``plan.unknown-step`` with near names; ``plan.empty-slice``.
    """
    problems = Problems()
    only = _expand(plan, "--only", chosen.only, problems)
    start = _expand(plan, "--from", chosen.start, problems)
    until = _expand(plan, "--until", chosen.until, problems)
    problems.raise_if_any()
    kept = set(graph.order)
    if only:
        kept &= only
    if start:
        kept &= start | graph.needing(start)
    if until:
        kept &= until | graph.needed_by(until)
    if not kept:
        raise ColdSnapError(
            "plan.empty-slice",
            "no step is in this slice",
            cause="nothing between --from and --until, or --only names none of it",
            remedy="coldsnap plan graph PLAN shows what needs what",
        )
    return tuple(step_id for step_id in graph.order if step_id in kept)


def sliced(plan: Plan, chosen: Slice) -> Plan:
    """The plan with only the steps of the slice.

    A step that needs one outside it needs instead what that one needs, so that order is kept.

    Raises:
        ColdSnapError: as `select`.
    """
    if chosen.is_whole:
        return plan
    graph = StepGraph.of(plan)
    kept = set(select(plan, graph, chosen))
    needs_of: dict[str, tuple[str, ...]] = {}
    stands_for: dict[str, tuple[str, ...]] = {}
    """Step -> itself if it is kept, else the kept steps that it comes after."""
    for step_id in graph.order:
        needs = tuple(
            dict.fromkeys(each for need in graph.by_id[step_id].needs for each in stands_for[need])
        )
        stands_for[step_id] = (step_id,) if step_id in kept else needs
        if step_id in kept:
            needs_of[step_id] = needs
    steps = (replace(node, needs=needs_of[node.id]) for node in plan.steps if node.id in kept)
    return replace(plan, steps=tuple(steps))


def _expand(plan: Plan, flag: str, names: Iterable[str], problems: Problems) -> set[str]:
    """Ids of the steps that names of steps or of template uses stand for."""
    ids = {node.id for node in plan.steps}
    uses = _uses(ids)
    found: set[str] = set()
    for name in names:
        if name in ids:
            found.add(name)
        elif name in uses:
            found |= {step_id for step_id in ids if step_id.startswith(f"{name}.")}
        else:
            problems.add(
                "plan.unknown-step",
                f"{flag} {shown(name)}: there is no such step in {plan.path}",
                remedy=hint(name, ids | uses),
            )
    return found


def _uses(ids: Iterable[str]) -> set[str]:
    """Ids of all template uses: ``a`` and ``a.b`` for a step ``a.b.c``."""
    uses: set[str] = set()
    for step_id in ids:
        parts = step_id.split(".")
        uses |= {".".join(parts[:count]) for count in range(1, len(parts))}
    return uses
