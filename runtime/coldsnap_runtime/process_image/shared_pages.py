"""Memory that a forked child still shares with its parent (copy on write).

CRIU finds such pages by comparing them and lets both keep one copy. Filling or mapping them for
each process would cost their memory twice, so areas that are shared to a good part stay with CRIU.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from coldsnap_runtime.process_image.image_errors import damaged
from coldsnap_runtime.process_image.memory_areas import Area, Range
from coldsnap_runtime.process_image.movable import is_plain
from coldsnap_runtime.process_image.page_map import Run
from coldsnap_runtime.process_image.process_image import Process, ProcessImage

_BLOCK: Final = 64 << 10
_SHARED_PART: Final = 4
"""One in so many of the child's bytes equal: the area counts as shared."""

Key = tuple[int, int]
"""(pid, start of an area)"""


def shared_areas(image: ProcessImage) -> frozenset[Key]:
    """The areas, of parents and of children, whose pages CRIU would share between them."""
    by_pid = {process.pid: process for process in image.processes}
    found: set[Key] = set()
    for child in image.processes:
        parent = by_pid.get(child.parent)
        if parent is None or parent.mm.exe_file_id != child.mm.exe_file_id:
            continue
        for start in _shared(image.folder, parent, child):
            found |= {(parent.pid, start), (child.pid, start)}
    return frozenset(found)


def _shared(folder: Path, parent: Process, child: Process) -> Iterator[int]:
    """Starts of shared areas; they are at the same place in both."""
    runs = {
        area.start: (area, pages) for area, pages in zip(parent.areas, parent.runs, strict=True)
    }
    pairs = [
        (area, pages, runs[area.start][1])
        for area, pages in zip(child.areas, child.runs, strict=True)
        if pages and is_plain(area) and _is_twin(area, runs.get(area.start, (None, []))[0])
    ]
    if not pairs:
        return
    with _pages(folder, parent) as theirs, _pages(folder, child) as ours:
        for area, pages, parent_pages in pairs:
            total = sum(run.bytes for run in pages)
            if _equal_bytes(pages, ours, parent_pages, theirs) * _SHARED_PART >= total:
                yield area.start


def _is_twin(area: Area, other: Area | None) -> bool:
    return other is not None and other.end == area.end and is_plain(other)


def _equal_bytes(ours: list[Run], our: memoryview, theirs: list[Run], their: memoryview) -> int:
    equal = 0
    at = 0
    for run in ours:
        while at < len(theirs) and theirs[at].end <= run.start:
            at += 1
        here = at
        while here < len(theirs) and theirs[here].start < run.end:
            other = theirs[here]
            both = Range(max(run.start, other.start), min(run.end, other.end))
            first, second = run.cut(both.start, both.end), other.cut(both.start, both.end)
            equal += sum(
                block
                for at_first, at_second, block in _blocks(first, second)
                if our[at_first : at_first + block] == their[at_second : at_second + block]
            )
            here += 1
    return equal


def _blocks(first: Run, second: Run) -> Iterator[tuple[int, int, int]]:
    """(place in the first file, in the second, bytes) of two runs of equal length."""
    for done in range(0, first.bytes, _BLOCK):
        size = min(_BLOCK, first.bytes - done)
        yield first.offset + done, second.offset + done, size


@contextlib.contextmanager
def _pages(folder: Path, process: Process) -> Iterator[memoryview]:
    """A pages file in memory. It must not shrink meanwhile: nobody else has it yet."""
    name, size = process.pages.pages_name, process.pages.pages_bytes
    descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_size != size:
            raise damaged(name, "it changed while it was read")
        if not size:
            yield memoryview(b"")
            return
        with mmap.mmap(descriptor, size, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as view:
            yield view
    finally:
        os.close(descriptor)
