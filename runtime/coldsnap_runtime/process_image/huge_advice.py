"""``ext``: which areas are asked to have huge pages, so that the filler faults 2 MiB at once.

Faults are nearly all that filling costs: 4 KiB pages come with 4.4 GiB/s on two cores, huge ones
with 8. The advice is the image's own (MADV_HUGEPAGE of an area), set by CRIU before it waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from coldsnap_runtime.process_image.memory_areas import (
    ADVICE_HUGEPAGE,
    ADVICE_NOHUGEPAGE,
    HUGE_PAGE,
    Area,
)

if TYPE_CHECKING:
    from coldsnap_runtime.process_image.rewrite_plan import Piece, ProcessPlan

_MOST_GROWTH: Final = 16
"""Of what an area holds, at most a sixteenth may come as memory that it did not have before."""


def advised(plan: ProcessPlan) -> dict[int, int]:
    """Start of each area that is asked -> bytes of its pages that huge ones will hold."""
    by_area: dict[int, tuple[Area, list[Piece]]] = {}
    for piece in plan.pieces:
        by_area.setdefault(piece.area.start, (piece.area, []))[1].append(piece)
    found = {start: _dense_bytes(area, pieces) for start, (area, pieces) in by_area.items()}
    return {start: size for start, size in found.items() if size}


def with_huge_advice(plan: ProcessPlan) -> Any:
    """A copy of the process's mm message with the advice; None where no area is asked."""
    areas = advised(plan)
    if not areas:
        return None
    mm = type(plan.process.mm)()
    mm.CopyFrom(plan.process.mm)
    for vma in mm.vmas[: len(plan.process.areas)]:  # what is guarded comes behind
        if vma.start in areas:
            vma.madv |= ADVICE_HUGEPAGE
    return mm


def _dense_bytes(area: Area, pieces: list[Piece]) -> int:
    """0 if there is nothing to gain, or too much memory that the area did not have.

    The area is taken or left as a whole: cut in two it would no longer be one mapping, which
    mremap() needs. Holes count as if each of their huge pages came: a later touch brings one.
    """
    if area.advice & (ADVICE_HUGEPAGE | ADVICE_NOHUGEPAGE):
        return 0
    first = -(-area.start // HUGE_PAGE) * HUGE_PAGE
    last = area.end // HUGE_PAGE * HUGE_PAGE
    filled = sum(
        max(0, min(run.end, last) - max(run.start, first)) for piece in pieces for run in piece.runs
    )
    grown = max(0, last - first) - filled
    return filled if grown * _MOST_GROWTH <= filled else 0
