"""What a rewrite moves: areas and runs of each process, for either way of bringing them back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from coldsnap_runtime.process_image.fill_index import (
    MAPPED,
    MAY_BE_HUGE,
    MOST_RUNS,
    FillIndex,
    IndexArea,
    IndexFile,
    IndexRun,
)
from coldsnap_runtime.process_image.image_errors import unsupported
from coldsnap_runtime.process_image.memory_areas import (
    ADVICE_NOHUGEPAGE,
    HUGE_PAGE,
    Area,
    Range,
)
from coldsnap_runtime.process_image.movable import movable_ranges, why_it_stays, worth_moving
from coldsnap_runtime.process_image.page_map import Run, within
from coldsnap_runtime.process_image.process_image import Process, ProcessImage
from coldsnap_runtime.process_image.shared_pages import shared_areas

_SMALLEST_MAPPING: Final = 128 << 10
_WORTH_PART: Final = 4
"""What stays of a process is copied; if that is more than three in four bytes, all of it stays."""
_WIDE_HOLE: Final = 64 << 20
_MOST_AREAS: Final = 30_000
"""Of one process, with the pieces that mapping makes: the kernel's usual limit is 65,530."""


@dataclass(frozen=True)
class Piece:
    """Memory of which every page that is not zero is taken out of CRIU's page map."""

    span: Range
    area: Area
    runs: tuple[Run, ...]

    @property
    def bytes(self) -> int:
        return sum(run.bytes for run in self.runs)


@dataclass(frozen=True)
class ProcessPlan:
    process: Process
    pieces: tuple[Piece, ...]
    """In order of addresses."""

    @property
    def bytes_moved(self) -> int:
        return sum(piece.bytes for piece in self.pieces)

    @property
    def bytes_all(self) -> int:
        return self.process.pages.pages_bytes

    @property
    def bytes_kept(self) -> int:
        return self.bytes_all - self.bytes_moved

    @property
    def runs(self) -> list[Run]:
        return [run for piece in self.pieces for run in piece.runs]


def plan_rewrite(image: ProcessImage, *, is_mapped: bool) -> list[ProcessPlan]:
    """The processes of which something is moved, by number.

    Raises:
        ColdSnapError: ``image.unsupported`` if there is nothing to move, or far too many pieces.
    """
    shared = shared_areas(image)
    plans = []
    for process in image.processes:
        pieces = _movable(process, shared)
        plans.append(ProcessPlan(process, _mappings(process, pieces) if is_mapped else pieces))
    plans = [plan for plan in plans if plan.bytes_moved * _WORTH_PART >= plan.bytes_all > 0]
    if not plans:
        raise unsupported("it holds no plain memory that is worth moving")
    if sum(len(plan.runs) for plan in plans) > MOST_RUNS:
        raise unsupported(f"its memory is in more than {MOST_RUNS} runs")
    return plans


def index_of(plans: list[ProcessPlan], *, is_mapped: bool) -> FillIndex:
    areas: list[IndexArea] = []
    runs: list[IndexRun] = []
    for number, plan in enumerate(plans):
        for piece in plan.pieces:
            flags = (MAPPED if is_mapped else 0) | (MAY_BE_HUGE if _may_be_huge(piece) else 0)
            areas.append(IndexArea(number, flags, piece.span.start, piece.span.end))
            runs += [
                IndexRun(number, number, run.start, run.bytes, run.offset) for run in piece.runs
            ]
    return FillIndex(
        files=tuple(
            IndexFile(plan.process.pages.pages_name, plan.process.pages.pages_bytes)
            for plan in plans
        ),
        processes=tuple(plan.process.pid for plan in plans),
        areas=tuple(areas),
        runs=tuple(runs),
    )


def kept_by_reason(image: ProcessImage, plans: list[ProcessPlan]) -> dict[str, int]:
    """Bytes that stay with CRIU, by the reason in words, the most first."""
    moved = {plan.process.pid: plan for plan in plans}
    found: dict[str, int] = {}
    for process in image.processes:
        plan = moved.get(process.pid)
        gone: dict[int, int] = {}
        for piece in plan.pieces if plan else ():
            gone[piece.area.start] = gone.get(piece.area.start, 0) + piece.bytes
        for area, runs in zip(process.areas, process.runs, strict=True):
            size = sum(run.bytes for run in runs) - gone.get(area.start, 0)
            if size:
                reason = why_it_stays(area) or _why_not_moved(process, area, plan)
                found[reason] = found.get(reason, 0) + size
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _why_not_moved(process: Process, area: Area, plan: ProcessPlan | None) -> str:
    if plan is None:
        return "process of which little could be moved"
    if any(area.start <= address < area.end for address in process.hot):
        return "near a stack, thread block or rseq"
    return "short runs, guarded or shared by forks"


def _movable(process: Process, shared: frozenset[tuple[int, int]]) -> tuple[Piece, ...]:
    return tuple(
        piece
        for area, runs in zip(process.areas, process.runs, strict=True)
        if runs and (process.pid, area.start) not in shared
        for piece in _of_area(process, area, runs)
    )


def _of_area(process: Process, area: Area, runs: list[Run]) -> Iterator[Piece]:
    for span in movable_ranges(process, area):
        inside = within(runs, span)
        if worth_moving(sum(run.bytes for run in inside)):
            yield from _without_wide_holes(span, area, inside)


def _without_wide_holes(span: Range, area: Area, runs: list[Run]) -> Iterator[Piece]:
    """Memory that is only reserved, by the gigabyte, need not be looked at for zeros."""
    groups: list[list[Run]] = []
    for run in runs:
        if groups and run.start - groups[-1][-1].end <= _WIDE_HOLE:
            groups[-1].append(run)
        else:
            groups.append([run])
    for group in groups:
        first, last = group[0].start, group[-1].end
        start = span.start if first - span.start <= _WIDE_HOLE else first
        end = span.end if span.end - last <= _WIDE_HOLE else last
        yield Piece(Range(start, end), area, tuple(group))


def _mappings(process: Process, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Each long enough run by itself: behind it the file goes on with other memory.

    What is between two runs must stay anonymous, because there zeros are read.
    """
    smallest = _SMALLEST_MAPPING
    while True:
        mappings = tuple(
            Piece(Range(run.start, run.end), piece.area, (run,))
            for piece in pieces
            for run in piece.runs
            if run.bytes >= smallest
        )
        if len(process.areas) + 2 * len(mappings) <= _MOST_AREAS:
            return mappings
        if not mappings:
            raise unsupported(f"process {process.pid} has {len(process.areas)} areas")
        smallest *= 2


def _may_be_huge(piece: Piece) -> bool:
    first = -(-piece.span.start // HUGE_PAGE) * HUGE_PAGE
    return first + HUGE_PAGE <= piece.span.end and not piece.area.advice & ADVICE_NOHUGEPAGE
