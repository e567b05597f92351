"""What is drawn: nodes in an order in which they could run, and the edges that matter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coldsnap.plan.model import Plan


@dataclass(frozen=True)
class Node:
    id: str
    type: str
    group: str
    """Id of the template use that brought it; empty for a step of the plan itself."""
    conditional: bool
    needs: tuple[str, ...]
    """Without those that follow from the others."""
    layer: int
    """Length of the longest way from a first step."""


@dataclass(frozen=True)
class Drawing:
    title: str
    nodes: tuple[Node, ...]

    def children(self) -> dict[str, list[str]]:
        """Id -> ids of the nodes that need it, in order."""
        found: dict[str, list[str]] = {node.id: [] for node in self.nodes}
        for node in self.nodes:
            for need in node.needs:
                found[need].append(node.id)
        return found


def drawing_of(plan: Plan) -> Drawing:
    """The drawing of an expanded plan, whose graph has no cycle."""
    steps = {step.id: step for step in plan.steps}
    ancestors: dict[str, set[str]] = {}
    layers: dict[str, int] = {}
    nodes = []
    for name in _ordered({name: step.needs for name, step in steps.items()}):
        step = steps[name]
        inherited = {up for need in step.needs for up in ancestors[need]}
        ancestors[name] = inherited | set(step.needs)
        layers[name] = max((layers[need] + 1 for need in step.needs), default=0)
        nodes.append(
            Node(
                name,
                step.type,
                step.use or "",
                step.when is not None or bool(step.outer_when),
                tuple(need for need in step.needs if need not in inherited),
                layers[name],
            )
        )
    return Drawing(plan.name, tuple(nodes))


def _ordered(needs: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Each after all that it needs; otherwise in the order given."""
    left = dict(needs)
    order: list[str] = []
    done: set[str] = set()
    while left:
        ready = [name for name, wanted in left.items() if done.issuperset(wanted)]
        if not ready:
            return [*order, *left]
        order.extend(ready)
        done.update(ready)
        for name in ready:
            del left[name]
    return order
