"""The DAG in characters: lanes for a terminal, Mermaid for a pull request, DOT for Graphviz."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldsnap.render.palette import PLAIN, Palette, clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coldsnap.render.graph.model import Drawing, Node


def text(drawing: Drawing, palette: Palette = PLAIN) -> str:
    """Nodes from first to last with lanes at their left, as version control draws history."""
    lanes = _Lanes()
    children = drawing.children()
    rows: list[tuple[str, Node | None]] = []
    for node in drawing.nodes:
        column, merge = lanes.enter(node.id)
        if merge:
            rows.append((merge, None))
        rows.append((lanes.mark(column), node))
        fork = lanes.leave(column, children[node.id])
        if fork:
            rows.append((fork, None))
    width = max((len(graph) for graph, _ in rows), default=0)
    name = max((len(clean(node.id)) for node in drawing.nodes), default=0)
    return "\n".join(_row(graph, node, (width, name), palette) for graph, node in rows)


def _row(graph: str, node: Node | None, widths: tuple[int, int], palette: Palette) -> str:
    if node is None:
        return palette.paint(graph.rstrip(), "dim")
    kind = palette.paint(clean(node.type), "dim")
    when = palette.paint("  when", "hint") if node.conditional else ""
    return f"{graph.ljust(widths[0])}  {clean(node.id).ljust(widths[1])}  {kind}{when}"


class _Lanes:
    """Columns, each leading down to the node it waits for; None is a free column."""

    def __init__(self) -> None:
        self._waiting: list[str | None] = []

    def enter(self, name: str) -> tuple[int, str]:
        """The node's column, and the row in which other lanes join it (empty if none does)."""
        columns = [i for i, target in enumerate(self._waiting) if target == name]
        if not columns:
            column = self._free(0)
            self._waiting[column] = name
            return column, ""
        first, *others = columns
        row = self._line(first, others, "╯") if others else ""
        for column in others:
            self._waiting[column] = None
        return first, row

    def leave(self, column: int, targets: Iterable[str]) -> str:
        """Give a lane to each target; the row in which they part (empty if there is one)."""
        first, *others = (*targets, None)
        self._waiting[column] = first
        added: list[int] = []
        for target in others:
            if target is not None:
                place = self._free(column + 1)
                self._waiting[place] = target
                added.append(place)
        row = self._line(column, added, "╮") if added else ""
        while self._waiting and self._waiting[-1] is None:
            self._waiting.pop()
        return row

    def mark(self, column: int) -> str:
        lanes = ("│" if target else " " for target in self._waiting)
        return " ".join("●" if i == column else lane for i, lane in enumerate(lanes))

    def _free(self, start: int) -> int:
        for column in range(start, len(self._waiting)):
            if self._waiting[column] is None:
                return column
        self._waiting.append(None)
        if len(self._waiting) - 1 < start:
            return self._free(start)
        return len(self._waiting) - 1

    def _line(self, start: int, ends: list[int], corner: str) -> str:
        """``├─┼─╮``: from column `start` to the right as far as the last of `ends`."""
        last = max(ends)
        tee = "┴" if corner == "╯" else "┬"
        cells = []
        for column, target in enumerate(self._waiting):
            if column == start:
                cell = "├"
            elif column in ends:
                cell = corner if column == last else tee
            elif start < column < last:
                cell = "┼" if target else "─"
            else:
                cell = "│" if target else " "
            cells.append(cell + ("─" if start <= column < last else " "))
        return "".join(cells).rstrip()


def mermaid(drawing: Drawing) -> str:
    """A flow chart; steps of one template use stand in one frame."""
    names = {node.id: f"n{number}" for number, node in enumerate(drawing.nodes)}
    lines = ["flowchart TD"]
    for group in dict.fromkeys(node.group for node in drawing.nodes):
        members = [node for node in drawing.nodes if node.group == group]
        indent = "  "
        if group:
            lines.append(f'  subgraph g{names[members[0].id]}["{_quoted(group)}"]')
            indent = "    "
        for node in members:
            label = f"{_quoted(node.id)}<br/>{_quoted(node.type)}"
            open_, close = ('{{"', '"}}') if node.conditional else ('["', '"]')
            lines.append(f"{indent}{names[node.id]}{open_}{label}{close}")
        if group:
            lines.append("  end")
    lines.extend(
        f"  {names[need]} --> {names[node.id]}" for node in drawing.nodes for need in node.needs
    )
    return "\n".join(lines)


def _quoted(value: str) -> str:
    table = {'"': "#quot;", "<": "#lt;", ">": "#gt;"}
    return "".join(table.get(char, char) for char in clean(value))


def dot(drawing: Drawing) -> str:
    """Graphviz' language."""
    lines = [f"digraph {_string(drawing.title)} {{", "  rankdir=TB;", "  node [shape=box];"]
    for node in drawing.nodes:
        style = " style=dashed" if node.conditional else ""
        label = _string(node.id + "\\n" + node.type)
        lines.append(f"  {_string(node.id)} [label={label}{style}];")
    lines.extend(
        f"  {_string(need)} -> {_string(node.id)};" for node in drawing.nodes for need in node.needs
    )
    return "\n".join([*lines, "}"])


def _string(value: str) -> str:
    escaped = clean(value).replace('"', '\\"')
    return f'"{escaped}"'
