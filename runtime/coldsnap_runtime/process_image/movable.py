"""Which memory a rewrite may take out of CRIU's hands.

Only plain anonymous memory that nobody but the program itself touches while CRIU restores it:
private, readable and writable, its pages all in the image. Everything else stays as CRIU wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from coldsnap_runtime.process_image.memory_areas import (
    ADVICE_DONTDUMP,
    ADVICE_DONTFORK,
    ADVICE_HUGEPAGE,
    ADVICE_MERGEABLE,
    ADVICE_NOHUGEPAGE,
    ADVICE_RANDOM,
    ADVICE_SEQUENTIAL,
    ADVICE_WIPEONFORK,
    ANON_PRIVATE,
    FILE_PRIVATE,
    HEAP,
    MAP_ANONYMOUS,
    MAP_NORESERVE,
    MAP_PRIVATE,
    PAGE,
    READ_WRITE,
    REGULAR,
    Area,
    Range,
)
from coldsnap_runtime.process_image.process_image import Process

_PLAIN_STATUS: Final = REGULAR | ANON_PRIVATE
_PLAIN_FLAGS: Final = MAP_PRIVATE | MAP_ANONYMOUS
# The others mean something to a fork, to the kernel's merging, or to a driver that has registered
# the memory (DONTFORK).
_PLAIN_ADVICE: Final = ADVICE_HUGEPAGE | ADVICE_NOHUGEPAGE | ADVICE_DONTDUMP

_ADVICE_NAMES: Final = {
    ADVICE_SEQUENTIAL: "sequential",
    ADVICE_RANDOM: "random",
    ADVICE_DONTFORK: "not inherited by forks",
    ADVICE_MERGEABLE: "mergeable",
    ADVICE_WIPEONFORK: "wiped in forks",
}

_BELOW: Final = 8 << 20
_ABOVE: Final = 1 << 20
"""Around an address that the kernel writes to: a usual stack grows so far below it, and thread
control blocks end so far above. The rest of an area stays plain, however large it was merged."""
_SMALLEST: Final = 64 << 10
"""Less than this is not worth an entry: CRIU is as fast."""


def why_it_stays(area: Area) -> str:
    """What is not plain about the area, in words; empty if it may be moved."""
    if not area.is_a(ANON_PRIVATE):
        return "mapped file" if area.is_a(FILE_PRIVATE) else "shared or special memory"
    if area.status & ~HEAP != _PLAIN_STATUS:
        return "special memory (stack, device, ring)"
    if area.flags & ~MAP_NORESERVE != _PLAIN_FLAGS:
        return "locked, droppable or growing memory"
    if area.prot != READ_WRITE:
        return "not readable and writable"
    if area.advice & ~_PLAIN_ADVICE:
        return "advice: " + ", ".join(
            name for bit, name in _ADVICE_NAMES.items() if area.advice & bit
        )
    return ""


def is_plain(area: Area) -> bool:
    """Whether the whole area is of the kind that may be moved, hot addresses aside."""
    return not why_it_stays(area)


def movable_ranges(process: Process, area: Area) -> list[Range]:
    """The parts of `area` that may be moved, in order; none if it is not plain."""
    if not is_plain(area) or any(area.overlaps(guard) for guard in process.guards):
        return []
    return [found for found in _around(area, process.hot) if found.bytes >= _SMALLEST]


def worth_moving(size: int) -> bool:
    return size >= _SMALLEST


def _around(area: Area, hot: tuple[int, ...]) -> Iterator[Range]:
    start = area.start
    for address in hot:
        if not area.start <= address < area.end:
            continue
        page = address - address % PAGE
        if page - _BELOW > start:
            yield Range(start, page - _BELOW)
        start = max(start, page + _ABOVE)
    if start < area.end:
        yield Range(start, area.end)
