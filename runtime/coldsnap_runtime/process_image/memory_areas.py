"""Areas of a process's memory (VMAs) as CRIU writes them, with the bits that we know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from coldsnap_runtime.process_image.image_errors import damaged, unsupported

PAGE: Final = 4096
HUGE_PAGE: Final = 2 << 20
_TOP: Final = 1 << 64

REGULAR: Final = 1 << 0
STACK: Final = 1 << 1
VSYSCALL: Final = 1 << 2
VDSO: Final = 1 << 3
HEAP: Final = 1 << 5
FILE_PRIVATE: Final = 1 << 6
FILE_SHARED: Final = 1 << 7
ANON_SHARED: Final = 1 << 8
ANON_PRIVATE: Final = 1 << 9
SYSV_SHARED: Final = 1 << 10
SOCKET: Final = 1 << 11
VVAR: Final = 1 << 12
AIO_RING: Final = 1 << 13
MEMFD: Final = 1 << 14
SHADOW_STACK: Final = 1 << 15
GUARD: Final = 1 << 16
UPROBES: Final = 1 << 17
PLUGIN: Final = 1 << 27
"""What an area is. The bits above 27 belong to a CRIU that runs, never to an image."""
_KNOWN_STATUS: Final = (
    REGULAR | STACK | VSYSCALL | VDSO | HEAP | FILE_PRIVATE | FILE_SHARED | ANON_SHARED
    | ANON_PRIVATE | SYSV_SHARED | SOCKET | VVAR | AIO_RING | MEMFD | SHADOW_STACK | GUARD
    | UPROBES | PLUGIN
)  # fmt: skip

MAP_SHARED: Final = 0x1
MAP_PRIVATE: Final = 0x2
MAP_DROPPABLE: Final = 0x8
MAP_ANONYMOUS: Final = 0x20
MAP_GROWSDOWN: Final = 0x100
MAP_LOCKED: Final = 0x2000
MAP_NORESERVE: Final = 0x4000
MAP_HUGETLB: Final = 0x40000
_KNOWN_FLAGS: Final = (
    MAP_SHARED | MAP_PRIVATE | MAP_DROPPABLE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_LOCKED
    | MAP_NORESERVE
)  # fmt: skip

ADVICE_SEQUENTIAL: Final = 1 << 2
ADVICE_RANDOM: Final = 1 << 1
ADVICE_DONTFORK: Final = 1 << 10
ADVICE_MERGEABLE: Final = 1 << 12
ADVICE_HUGEPAGE: Final = 1 << 14
ADVICE_NOHUGEPAGE: Final = 1 << 15
ADVICE_DONTDUMP: Final = 1 << 16
ADVICE_WIPEONFORK: Final = 1 << 18
"""Bit N is madvise's advice N."""
_KNOWN_ADVICE: Final = (
    ADVICE_SEQUENTIAL | ADVICE_RANDOM | ADVICE_DONTFORK | ADVICE_MERGEABLE | ADVICE_HUGEPAGE
    | ADVICE_NOHUGEPAGE | ADVICE_DONTDUMP | ADVICE_WIPEONFORK
)  # fmt: skip

READ_WRITE: Final = 3


@dataclass(frozen=True)
class Range:
    """Bytes from `start` up to, not including, `end`."""

    start: int
    end: int

    @property
    def bytes(self) -> int:
        return self.end - self.start

    def overlaps(self, other: Range) -> bool:
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True)
class Area(Range):
    """One VMA."""

    prot: int
    flags: int
    status: int
    advice: int
    file_id: int
    """Of what is mapped: an id of files.img or of a shared segment; 0 for none."""
    message: Any
    """CRIU's own, never changed: a rewrite copies it."""

    def is_a(self, bit: int) -> bool:
        return bool(self.status & bit)


def read_areas(name: str, messages: Iterable[Any]) -> tuple[tuple[Area, ...], tuple[Range, ...]]:
    """The areas of file `name`, and the ranges under MADV_GUARD_INSTALL, listed after them.

    Raises:
        ColdSnapError: ``image.damaged`` for what no kernel has (overlaps, crooked borders);
            ``image.unsupported`` for unknown bits and huge pages of hugetlbfs.
    """
    areas: list[Area] = []
    guards: list[Range] = []
    for message in messages:
        area = _area(message)
        if not 0 <= area.start < area.end < _TOP or (area.start | area.end) % PAGE:
            raise damaged(name, f"an area from {area.start:#x} to {area.end:#x}")
        if area.status == GUARD:
            guards.append(Range(area.start, area.end))
            continue
        _check_known(name, area)
        if guards or (areas and area.start < areas[-1].end):
            raise damaged(name, f"the area at {area.start:#x} is out of order")
        areas.append(area)
    return tuple(areas), tuple(guards)


def containing(areas: Sequence[Area], address: int) -> Area | None:
    """The area that holds the byte at `address`; `areas` are in order."""
    low, high = 0, len(areas)
    while low < high:
        middle = (low + high) // 2
        if areas[middle].end <= address:
            low = middle + 1
        else:
            high = middle
    return areas[low] if low < len(areas) and areas[low].start <= address else None


def _area(message: Any) -> Area:
    return Area(
        start=message.start,
        end=message.end,
        prot=message.prot,
        flags=message.flags,
        status=message.status,
        advice=message.madv,
        file_id=message.shmid,
        message=message,
    )


def _check_known(name: str, area: Area) -> None:
    place = f"the area at {area.start:#x} ({name})"
    if unknown := area.status & ~_KNOWN_STATUS:
        raise unsupported(f"{place} has status bits {unknown:#x}, which are not known here")
    if area.flags & MAP_HUGETLB:
        raise unsupported(f"{place} is of hugetlb pages")
    if unknown := area.flags & ~_KNOWN_FLAGS:
        raise unsupported(f"{place} has flags {unknown:#x}, which are not known here")
    if unknown := area.advice & ~_KNOWN_ADVICE:
        raise unsupported(f"{place} has madvise bits {unknown:#x}, which are not known here")
