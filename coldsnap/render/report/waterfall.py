"""A cold start and a restore as two waterfalls on one axis, for the page and for a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coldsnap.render.columns import Cell, table
from coldsnap.render.palette import PLAIN, Palette
from coldsnap.render.phases import note_of
from coldsnap.render.quantities import fine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldsnap.render.phases import Phase
    from coldsnap.render.report.races import Race

_BAR: Final = 40


@dataclass(frozen=True)
class Lane:
    label: str
    start: float
    """Seconds on the axis, which begins when the target was told to start or to restore."""
    seconds: float
    depth: int
    """0 for a whole start, 1 and more for its phases."""
    kind: str
    """cold, restore."""
    note: str = ""
    ok: bool = True


def lanes_of(race: Race) -> tuple[Lane, ...]:
    """The cold start with its phases, as far as they are known, then the restore with its own."""
    lanes: list[Lane] = []
    if race.cold_seconds is not None:
        lanes.append(Lane("cold start", 0.0, race.cold_seconds, 0, "cold"))
        lanes += _phases(race.cold_phases, "cold")
    name = "started cold" if race.started_cold else "restore"
    lanes.append(Lane(name, 0.0, race.restore_seconds, 0, "restore"))
    return (*lanes, *_phases(race.restore_phases, "restore"))


def _phases(phases: Sequence[Phase], kind: str) -> list[Lane]:
    return [
        Lane(p.name, p.start, p.seconds, p.depth + 1, kind, note_of(p), p.ok)
        for p in sorted(phases, key=lambda p: _order(p, phases))
    ]


def _order(phase: Phase, phases: Sequence[Phase]) -> tuple[float, ...]:
    """Below what it lies in, by when that began."""
    begins: list[float] = []
    for depth in range(1, len(phase.path)):
        holders = [
            p.start for p in phases if p.path == phase.path[:depth] and p.start <= phase.start
        ]
        begins.append(max(holders, default=phase.start))
    return (*begins, phase.start)


def waterfall_text(race: Race, palette: Palette = PLAIN) -> str:
    """Both as a table: what, when it began, how long it took, where it lies on the axis."""
    rows: list[list[str | Cell]] = []
    for lane in lanes_of(race):
        style = "strong" if not lane.depth else ("" if lane.ok else "error")
        rows.append(
            [
                Cell("  " * lane.depth + lane.label, style),
                fine(lane.start) if lane.start else "0",
                Cell(fine(lane.seconds), style),
                Cell(bar(lane, race.span), "dim" if lane.kind == "cold" else "good"),
                lane.note,
            ]
        )
    facts = "".join(f"\n   {fact}" for fact in race.facts)
    head = f" {palette.paint(f'{race.unit} on {race.host}', 'strong')}, to the same first token"
    header = ("", "from", "took", "", "")
    return f"{head}{facts}\n" + table(header, rows, palette, right=(1, 2), indent="   ")


def bar(lane: Lane, span: float) -> str:
    """Its place on an axis of `span` seconds, in characters; never without one."""
    left = min(_BAR - 1, int(lane.start / span * _BAR))
    width = max(1, min(_BAR - left, round(lane.seconds / span * _BAR)))
    return "·" * left + "█" * width + "·" * (_BAR - left - width)
