"""Aligned columns: tables that stay whole when they are piped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldsnap.render.palette import PLAIN, Palette, clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True)
class Cell:
    """Text and the style it is painted in."""

    text: str
    style: str = ""


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str | Cell]],
    palette: Palette = PLAIN,
    *,
    right: Iterable[int] = (),
    indent: str = "",
) -> str:
    """Header and rows in columns two blanks apart; `right` names columns set flush right.

    No line is cut: a terminal wraps, a pipe keeps all. The last column is not padded.
    """
    numbers = frozenset(right)
    cells = [[_cell(value) for value in row] for row in rows]
    head = [Cell(name, "strong") for name in header]
    every = [head, *cells] if header else cells
    if not every:
        return ""
    columns = max(len(row) for row in every)
    widths = [max(len(row[i].text) if i < len(row) else 0 for row in every) for i in range(columns)]
    return "\n".join(indent + _row(row, widths, numbers, palette) for row in every)


def _cell(value: str | Cell) -> Cell:
    return Cell(clean(value.text), value.style) if isinstance(value, Cell) else Cell(clean(value))


def _row(
    row: Sequence[Cell], widths: Sequence[int], right: frozenset[int], palette: Palette
) -> str:
    parts = []
    for index, cell in enumerate(row):
        blank = " " * (widths[index] - len(cell.text))
        text = palette.paint(cell.text, cell.style)
        parts.append(blank + text if index in right else text + blank)
    return "  ".join(parts).rstrip()


def pairs(values: Iterable[tuple[str, str]], palette: Palette = PLAIN, *, indent: str = "") -> str:
    """``name  value`` lines, names dimmed."""
    return table((), [(Cell(name, "dim"), value) for name, value in values], palette, indent=indent)
