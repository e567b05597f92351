"""The DAG of a plan's steps: order, what needs what, layers.

networkx is imported where its algorithms are needed (slices, drawings): it takes longer to import
than a plan to load, and every command that reaches hosts needs the order.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.plan.model import Plan, StepNode

if TYPE_CHECKING:
    import networkx as nx


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
        import networkx as nx  # noqa: PLC0415  (start-up time)

        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_nodes_from(node.id for node in self.nodes)
        graph.add_edges_from((need, node.id) for node in self.nodes for need in node.needs)
        return graph

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Ids, needed steps first, otherwise in document order (so the same every time)."""
        position = {node.id: index for index, node in enumerate(self.nodes)}
        sorter = TopologicalSorter({node.id: node.needs for node in self.nodes})
        sorter.prepare()
        ready: list[tuple[int, str]] = []
        found: list[str] = []
        while sorter.is_active():
            for step_id in sorter.get_ready():
                heapq.heappush(ready, (position[step_id], step_id))
            _, first = heapq.heappop(ready)
            found.append(first)
            sorter.done(first)
        return tuple(found)

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
        import networkx as nx  # noqa: PLC0415

        chosen = set(ids)
        return set().union(*(nx.ancestors(self.digraph, each) for each in chosen)) - chosen

    def needing(self, ids: Iterable[str]) -> set[str]:
        """Everything that needs any of `ids`, directly or through others; without `ids`."""
        import networkx as nx  # noqa: PLC0415

        chosen = set(ids)
        return set().union(*(nx.descendants(self.digraph, each) for each in chosen)) - chosen

    @cached_property
    def reduced(self) -> dict[str, tuple[str, ...]]:
        """Needs without those that follow from others: what a drawing shows."""
        import networkx as nx  # noqa: PLC0415

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
            TopologicalSorter({node.id: node.needs for node in self.nodes}).prepare()
        except CycleError as error:
            raise self._cycle(error.args[1]) from None

    def _cycle(self, found: list[str]) -> ColdSnapError:
        """`found`: each is needed by the next, the first is also the last."""
        names = found[:0:-1]
        position = {node.id: index for index, node in enumerate(self.nodes)}
        first = names.index(min(names, key=position.__getitem__))
        names = names[first:] + names[:first]
        return ColdSnapError(
            "plan.cycle",
            f"steps need each other: {' -> '.join((*names, names[0]))}",
            source=self.by_id[names[0]].source,
            remedy="remove one of these needs",
        )
