"""A plan's DAG as text: a rail per open line, as ``git log --graph`` draws history.

::

    ●    setup    core.stage
    ├─┐
    ● │  probe    core.probe
    │ ●  pull     core.fetch
    ●─┘  launch   core.launch
"""

from __future__ import annotations

from collections.abc import Sequence

from coldsnap.graph.dag import StepGraph

_ASCII = str.maketrans("●│─├┼┴┬┘┐", "*|-+++++'")


def render_text(graph: StepGraph, *, ascii_only: bool = False) -> str:
    """One line per step, needed ones first; lines lead from a step to those that need it.

    Needs that follow from others are not drawn.
    """
    followers = _followers(graph)
    rails: list[str | None] = []
    rows: list[tuple[str, str]] = []
    widest = max((len(step_id) for step_id in graph.order), default=0)
    for step_id in graph.order:
        column, joined = _arrive(rails, step_id)
        node = graph.by_id[step_id]
        rows.append((_row(rails, column, joined, "●┴┘"), f"{step_id:<{widest}}  {node.type}"))
        for each in joined:
            rails[each] = None
        opened = _leave(rails, column, followers[step_id])
        if opened:
            rows.append((_row(rails, column, opened, "├┬┐"), ""))
    width = max((len(rail) for rail, _ in rows), default=0)
    text = "\n".join(f"{rail:<{width}}  {label}".rstrip() for rail, label in rows)
    return text.translate(_ASCII) if ascii_only else text


def _followers(graph: StepGraph) -> dict[str, list[str]]:
    followers: dict[str, list[str]] = {step_id: [] for step_id in graph.order}
    for step_id in graph.order:
        for need in graph.reduced[step_id]:
            followers[need].append(step_id)
    return followers


def _arrive(rails: list[str | None], step_id: str) -> tuple[int, list[int]]:
    """The rail on which a step stands, and those that join it from the right."""
    columns = [index for index, target in enumerate(rails) if target == step_id]
    if not columns:
        columns = [rails.index(None) if None in rails else len(rails)]
        if columns[0] == len(rails):
            rails.append(None)
        rails[columns[0]] = step_id
    return columns[0], columns[1:]


def _leave(rails: list[str | None], column: int, followers: Sequence[str]) -> list[int]:
    """Lead rails from a step to its followers; those opened beside its own."""
    rails[column] = followers[0] if followers else None
    opened = []
    for follower in followers[1:]:
        free = (i for i in range(column + 1, len(rails)) if rails[i] is None)
        index = next(free, len(rails))
        if index == len(rails):
            rails.append(None)
        rails[index] = follower
        opened.append(index)
    while rails and rails[-1] is None:
        rails.pop()
    return sorted(opened)


def _row(rails: Sequence[str | None], column: int, others: Sequence[int], marks: str) -> str:
    """One row of rails: `marks` are at the step, at a rail on the way, at the last rail."""
    last = max(others, default=column)
    cells = []
    for index, target in enumerate(rails):
        if index == column:
            cell = marks[0]
        elif index in others:
            cell = marks[2] if index == last else marks[1]
        elif column < index < last:
            cell = "┼" if target is not None else "─"
        else:
            cell = "│" if target is not None else " "
        cells.append(cell + ("─" if column <= index < last else " "))
    return "".join(cells).rstrip()
