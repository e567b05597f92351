"""The DAG of a plan's steps: order, what needs what, layers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import networkx as nx

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.plan.model import Plan, StepNode


@dataclass(frozen=True)
class StepGraph:
    """Edges go from a needed step to the step that needs it."""

    nodes: tuple[StepNode, ...]
    """In document order."""

    @classmethod
    def of(cls, plan: Plan) -> StepGraph:
        """The graph of a plan.

        Raises:
            ColdSnapError: ``plan.cycle`` naming the cycle, ``plan.missing-need``.
        """
        graph = cls(plan.steps)
        graph._check()
        return graph

    @cached_property
    def by_id(self) -> dict[str, StepNode]:
        return {node.id: node for node in self.nodes}

    @cached_property
    def digraph(self) -> nx.DiGraph[str]:
        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_nodes_from(node.id for node in self.nodes)
        graph.add_edges_from((need, node.id) for node in self.nodes for need in node.needs)
        return graph

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Ids, needed steps first, otherwise in document order (so the same every time)."""
        position = {node.id: index for index, node in enumerate(self.nodes)}
        return tuple(nx.lexicographical_topological_sort(self.digraph, key=position.__getitem__))

    @cached_property
    def layers(self) -> tuple[tuple[str, ...], ...]:
        """Ids by their longest distance from a step that needs nothing."""
        depth: dict[str, int] = {}
        for step_id in self.order:
            needs = self.by_id[step_id].needs
            depth[step_id] = 1 + max((depth[need] for need in needs), default=-1)
        rows: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
        for step_id in self.order:
            rows[depth[step_id]].append(step_id)
        return tuple(tuple(row) for row in rows)

    def needed_by(self, ids: Iterable[str]) -> set[str]:
        """Everything that any of `ids` needs, directly or through others; without `ids`."""
        chosen = set(ids)
        return set().union(*(nx.ancestors(self.digraph, each) for each in chosen)) - chosen

    def needing(self, ids: Iterable[str]) -> set[str]:
        """Everything that needs any of `ids`, directly or through others; without `ids`."""
        chosen = set(ids)
        return set().union(*(nx.descendants(self.digraph, each) for each in chosen)) - chosen

    @cached_property
    def reduced(self) -> dict[str, tuple[str, ...]]:
        """Needs without those that follow from others: what a drawing shows."""
        reduction = nx.transitive_reduction(self.digraph)
        return {
            node.id: tuple(need for need in node.needs if reduction.has_edge(need, node.id))
            for node in self.nodes
        }

    def _check(self) -> None:
        for node in self.nodes:
            for need in node.needs:
                if need not in self.by_id:
                    raise ColdSnapError(
                        "plan.missing-need",
                        f'step "{node.id}" needs "{need}", which is not in the plan',
                        source=node.source,
                    )
        try:
            cycle = nx.find_cycle(self.digraph)
        except nx.NetworkXNoCycle:
            return
        names = [edge[0] for edge in reversed(cycle)]
        raise ColdSnapError(
            "plan.cycle",
            f"steps need each other: {' -> '.join((*names, names[0]))}",
            source=self.by_id[names[0]].source,
            remedy="remove one of these needs",
        )
