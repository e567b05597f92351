"""A layered layout of a DAG: rows by depth, order in a row by what is above and below."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from coldsnap.graph.dag import StepGraph

SWEEPS = 4
"""Passes down and up; plans are small, more change nothing."""


@dataclass(frozen=True)
class Layout:
    """Cells are step ids, or names of bends of an edge that spans several rows."""

    rows: tuple[tuple[str, ...], ...]
    edges: tuple[tuple[str, ...], ...]
    """Each a chain of cells: a step, bends, a step; one cell per row."""
    x: Mapping[str, float]
    """Centre of each cell."""
    bends: frozenset[str]


@dataclass
class _Cells:
    rows: list[list[str]]
    edges: list[tuple[str, ...]] = field(default_factory=list)
    above: dict[str, list[str]] = field(default_factory=dict)
    below: dict[str, list[str]] = field(default_factory=dict)
    bends: set[str] = field(default_factory=set)


def lay_out(graph: StepGraph, width: Callable[[str], float], gap: float, bend: float) -> Layout:
    """Place every step.

    Args:
        graph: the DAG.
        width: of a step's box.
        gap: between boxes of a row.
        bend: room for an edge that passes through a row.
    """
    cells = _with_bends(graph)
    for sweep in range(SWEEPS):
        rows = cells.rows if sweep % 2 == 0 else cells.rows[::-1]
        beside = cells.above if sweep % 2 == 0 else cells.below
        for before, row in pairwise(rows):
            position = {cell: index for index, cell in enumerate(before)}
            row.sort(key=lambda cell: _centre(beside.get(cell, ()), position))
    widths = {
        cell: bend if cell in cells.bends else width(cell) for row in cells.rows for cell in row
    }
    totals = [sum(widths[cell] for cell in row) + gap * (len(row) - 1) for row in cells.rows]
    widest = max(totals, default=0.0)
    x: dict[str, float] = {}
    for row, total in zip(cells.rows, totals, strict=True):
        left = (widest - total) / 2
        for cell in row:
            x[cell] = left + widths[cell] / 2
            left += widths[cell] + gap
    rows_done = tuple(tuple(row) for row in cells.rows)
    return Layout(rows_done, tuple(cells.edges), x, frozenset(cells.bends))


def _with_bends(graph: StepGraph) -> _Cells:
    depth = {step_id: row for row, layer in enumerate(graph.layers) for step_id in layer}
    cells = _Cells([list(layer) for layer in graph.layers])
    for step_id in graph.order:
        for need in graph.reduced[step_id]:
            chain = [need]
            for row in range(depth[need] + 1, depth[step_id]):
                name = f"{need}\0{step_id}\0{row}"
                cells.rows[row].append(name)
                cells.bends.add(name)
                chain.append(name)
            chain.append(step_id)
            cells.edges.append(tuple(chain))
            for upper, lower in pairwise(chain):
                cells.above.setdefault(lower, []).append(upper)
                cells.below.setdefault(upper, []).append(lower)
    return cells


def _centre(beside: list[str] | tuple[()], position: Mapping[str, int]) -> float:
    places = [position[cell] for cell in beside if cell in position]
    return sum(places) / len(places) if places else 0.0
