"""Which pages of a process are in its ``pages-N.img``, and where."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from coldsnap_runtime.process_image.image_errors import damaged, unsupported
from coldsnap_runtime.process_image.image_file import read_messages
from coldsnap_runtime.process_image.image_messages import image_messages
from coldsnap_runtime.process_image.memory_areas import PAGE, Area, Range

_PARENT: Final = 1
_LAZY: Final = 2
_PRESENT: Final = 4
_TOP: Final = 1 << 64
_OLD_COUNT: Final = "compat_nr_pages"
"""Since CRIU 4.2 the field that was `nr_pages` has this name; it is required, and 0."""


@dataclass(frozen=True)
class Run(Range):
    """Pages one after the other, in memory and in the file."""

    offset: int
    """Of the first byte in the pages file."""
    flags: int
    """CRIU's, of the entry that the run comes from."""

    def cut(self, start: int, end: int) -> Run:
        return Run(start, end, self.offset + start - self.start, self.flags)


@dataclass(frozen=True)
class PageMap:
    head: Any
    runs: tuple[Run, ...]
    """In order of addresses, as CRIU's entries are."""
    pages_name: str
    pages_bytes: int

    @property
    def pages_id(self) -> int:
        return int(self.head.pages_id)


def pages_name(pages_id: int) -> str:
    return f"pages-{pages_id}.img"


def read_page_map(folder: Path, name: str) -> PageMap:
    """The page map in file `name`, checked against the size of its pages file.

    Raises:
        ColdSnapError: ``image.damaged``, ``image.unsupported`` (pages of a parent image, lazy).
    """
    classes = image_messages()
    types = (classes.pagemap_head, classes.pagemap_entry)
    head, *entries = read_messages(folder, name, "PAGEMAP", *types)
    pages = pages_name(head.pages_id)
    size = _size(folder, pages)
    runs: list[Run] = []
    offset = 0
    for entry in entries:
        run = _run(name, entry, offset)
        offset += run.bytes
        if offset > size:
            raise damaged(pages, f"it has {size} bytes, fewer than {name} says")
        if runs and run.start < runs[-1].end:
            raise damaged(name, f"the pages at {run.start:#x} are out of order")
        runs.append(run)
    if offset != size:
        raise damaged(pages, f"it has {size} bytes where {name} says {offset}")
    return PageMap(head, tuple(runs), pages, size)


def page_map_entry(run: Run) -> Any:
    """CRIU's entry for a run, as its own version writes it."""
    kind = image_messages().pagemap_entry
    old = {_OLD_COUNT: 0} if _OLD_COUNT in kind.DESCRIPTOR.fields_by_name else {}
    return kind(vaddr=run.start, nr_pages=run.bytes // PAGE, flags=run.flags, **old)


def runs_by_area(name: str, runs: Sequence[Run], areas: Sequence[Area]) -> list[list[Run]]:
    """The runs of each area; those that touch within an area are joined.

    Raises:
        ColdSnapError: ``image.damaged`` if a page belongs to none.
    """
    found: list[list[Run]] = [[] for _ in areas]
    at = 0
    for run in runs:
        start = run.start
        while start < run.end:
            while at < len(areas) and areas[at].end <= start:
                at += 1
            if at == len(areas) or areas[at].start > start:
                raise damaged(name, f"the page at {start:#x} is in no area")
            end = min(run.end, areas[at].end)
            _append(found[at], run.cut(start, end))
            start = end
    return found


def within(runs: Sequence[Run], span: Range) -> list[Run]:
    """What of `runs` is in `span`."""
    return [
        run.cut(max(run.start, span.start), min(run.end, span.end))
        for run in runs
        if run.overlaps(span)
    ]


def without(runs: Sequence[Run], taken: Sequence[Range]) -> list[Run]:
    """What stays of `runs` when `taken`, in order and disjoint, is taken away."""
    left: list[Run] = []
    at = 0
    for run in runs:
        start = run.start
        while at < len(taken) and taken[at].end <= start:
            at += 1
        here = at
        while here < len(taken) and taken[here].start < run.end:
            if start < taken[here].start:
                left.append(run.cut(start, taken[here].start))
            start = max(start, taken[here].end)
            here += 1
        if start < run.end:
            left.append(run.cut(start, run.end))
    return left


def _append(runs: list[Run], run: Run) -> None:
    """Runs that touch in memory touch in the file too: the file has no gaps."""
    if runs and runs[-1].end == run.start:
        last = runs.pop()
        run = Run(last.start, run.end, last.offset, last.flags)
    runs.append(run)


def _run(name: str, entry: Any, offset: int) -> Run:
    count = entry.nr_pages or getattr(entry, _OLD_COUNT, 0)
    end = entry.vaddr + count * PAGE
    if not count or entry.vaddr % PAGE or end > _TOP:
        raise damaged(name, f"{count} pages at {entry.vaddr:#x}")
    if entry.in_parent or entry.flags & _PARENT:
        raise unsupported(f"pages of {name} are in a parent image (in_parent)")
    if not entry.flags & _PRESENT:
        raise unsupported(f"pages of {name} are absent (lazy)")
    if unknown := entry.flags & ~(_LAZY | _PRESENT):
        raise unsupported(f"pages of {name} have flags {unknown:#x}, which are not known here")
    return Run(entry.vaddr, end, offset, entry.flags)


def _size(folder: Path, name: str) -> int:
    try:
        found = os.stat(folder / name, follow_symlinks=False)
    except OSError as error:
        raise damaged(name, os.strerror(error.errno or 0)) from None
    if not stat.S_ISREG(found.st_mode):
        raise damaged(name, "it is not a regular file")
    return found.st_size
