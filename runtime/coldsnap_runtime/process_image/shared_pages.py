"""Memory that a forked child still shares with its parent (copy on write).

CRIU finds such pages by comparing them one by one and lets both keep one copy. A rewrite brings
them back for each process: fast, but twice. So a tree that shares little is moved all the same, and
where much is shared, as by a server and its many forks, those areas stay with CRIU.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from coldsnap_runtime.process_image.image_errors import damaged
from coldsnap_runtime.process_image.memory_areas import PAGE, Area
from coldsnap_runtime.process_image.movable import is_plain
from coldsnap_runtime.process_image.page_map import Run
from coldsnap_runtime.process_image.process_image import Process, ProcessImage

_SHARED_PART: Final = 4
"""One in so many of the child's bytes equal: the area counts as shared."""
_FREE_BYTES: Final = 1 << 30
_FREE_PART: Final = 4
"""Memory that may come twice: so many bytes, or one in so many of the image if that is more."""

Key = tuple[int, int]
"""(pid, start of an area)"""


def shared_areas(image: ProcessImage) -> frozenset[Key]:
    """The areas, of parents and of children, that CRIU must bring back to keep them shared."""
    by_pid = {process.pid: process for process in image.processes}
    found: set[Key] = set()
    shared = 0
    for child in image.processes:
        parent = by_pid.get(child.parent)
        if parent is None or parent.mm.exe_file_id != child.mm.exe_file_id:
            continue
        for start, size in _shared(image.folder, parent, child):
            found |= {(parent.pid, start), (child.pid, start)}
            shared += size
    total = sum(process.pages.pages_bytes for process in image.processes)
    return frozenset(found) if shared > max(_FREE_BYTES, total // _FREE_PART) else frozenset()


def _shared(folder: Path, parent: Process, child: Process) -> Iterator[tuple[int, int]]:
    """(start, equal bytes) of shared areas; they are at the same place in both."""
    runs = {
        area.start: (area, pages) for area, pages in zip(parent.areas, parent.runs, strict=True)
    }
    pairs = [
        (area, pages, runs[area.start][1])
        for area, pages in zip(child.areas, child.runs, strict=True)
        if pages and is_plain(area) and _is_twin(area, runs.get(area.start, (None, []))[0])
    ]
    if not any(theirs for _, _, theirs in pairs):
        return
    with _pages(folder, parent) as theirs, _pages(folder, child) as ours:
        for area, pages, parent_pages in pairs:
            total = sum(run.bytes for run in pages)
            equal = sum(
                _equal(ours, first, theirs, second)
                for first, second in _in_both(pages, parent_pages)
            )
            if equal * _SHARED_PART >= total:
                yield area.start, equal


def _is_twin(area: Area, other: Area | None) -> bool:
    return other is not None and other.end == area.end and is_plain(other)


def _in_both(ours: list[Run], theirs: list[Run]) -> Iterator[tuple[Run, Run]]:
    """The parts of runs that are dumped at the same addresses of both processes."""
    at = 0
    for run in ours:
        while at < len(theirs) and theirs[at].end <= run.start:
            at += 1
        for other in theirs[at:]:
            if other.start >= run.end:
                break
            start, end = max(run.start, other.start), min(run.end, other.end)
            yield run.cut(start, end), other.cut(start, end)


def _equal(ours: mmap.mmap, first: Run, theirs: mmap.mmap, second: Run) -> int:
    """Bytes of equal pages in two runs of equal length."""
    return sum(
        PAGE
        for at in range(0, first.bytes, PAGE)
        if ours[first.offset + at : first.offset + at + PAGE]
        == theirs[second.offset + at : second.offset + at + PAGE]
    )


@contextlib.contextmanager
def _pages(folder: Path, process: Process) -> Iterator[mmap.mmap]:
    """A pages file in memory. It must not shrink meanwhile: nobody else has it yet."""
    name, size = process.pages.pages_name, process.pages.pages_bytes
    descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_size != size:
            raise damaged(name, "it changed while it was read")
        with mmap.mmap(descriptor, size, prot=mmap.PROT_READ) as mapped:
            yield mapped
    finally:
        os.close(descriptor)
