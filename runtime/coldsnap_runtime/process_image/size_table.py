"""What an image is made of: bytes by process, kind of memory and area."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from coldsnap_runtime.process_image.image_file import read_messages
from coldsnap_runtime.process_image.image_messages import image_messages, text_of
from coldsnap_runtime.process_image.memory_areas import (
    ANON_PRIVATE,
    ANON_SHARED,
    FILE_PRIVATE,
    HEAP,
    MAP_GROWSDOWN,
    MEMFD,
    PLUGIN,
    SYSV_SHARED,
    Area,
    Range,
)
from coldsnap_runtime.process_image.page_map import read_page_map, within
from coldsnap_runtime.process_image.process_image import Process, ProcessImage, read_process_image

_MOST_ROWS: Final = 4096
_STACK_AREA: Final = 64 << 20
"""An area with a thread's stack in it that is larger is memory that was merged with it."""


DeviceRanges = Mapping[int, Sequence[Sequence[int]]]
"""Process -> (start, end) of memory in which the driver keeps device state."""


def sizes(images: Path, device_state: DeviceRanges | None = None) -> list[dict[str, Any]]:
    """Rows ``{pid, process, kind, name, start, bytes}``, the largest first, at most 4096.

    Kinds: ``heap``, ``anonymous``, ``stack``, ``file-private`` (changed pages of mapped files),
    ``shared`` (counted for the first process that maps it), ``device`` (mapped from one),
    ``device-state`` (what the driver took from a device, as `device_state` says), ``other``.

    Raises:
        ColdSnapError: ``image.damaged``, ``image.unsupported``.
    """
    image = read_process_image(images)
    names = _names(images)
    rows = [
        row
        for process in image.processes
        for row in _private(process, names, (device_state or {}).get(process.pid, ()))
    ]
    rows += _shared(image)
    rows.sort(key=lambda row: (-row["bytes"], row["pid"], row["start"]))
    return rows[:_MOST_ROWS]


def _private(
    process: Process, names: Mapping[int, str], device_state: Sequence[Sequence[int]]
) -> Iterator[dict[str, Any]]:
    for area, runs in zip(process.areas, process.runs, strict=True):
        kind = _kind(process, area)
        name = names.get(area.file_id, "") if kind == "file-private" else ""
        size = sum(run.bytes for run in runs)
        inside = [
            Range(start, end) for start, end in device_state if area.overlaps(Range(start, end))
        ]
        of_device = sum(run.bytes for span in inside for run in within(runs, span))
        if of_device:
            start = max(area.start, inside[0].start)
            yield _row(process, "device-state", "", start, of_device)
        if size > of_device:
            yield _row(process, kind, name, area.start, size - of_device)


def _shared(image: ProcessImage) -> Iterator[dict[str, Any]]:
    seen: set[int] = set()
    for process in image.processes:
        for area in process.areas:
            name = f"pagemap-shmem-{area.file_id}.img"
            is_shared = area.status & (ANON_SHARED | MEMFD | SYSV_SHARED)
            if not is_shared or area.file_id in seen or not (image.folder / name).is_file():
                continue
            seen.add(area.file_id)
            size = read_page_map(image.folder, name).pages_bytes
            yield _row(process, "shared", "", area.start, size)


def _kind(process: Process, area: Area) -> str:
    if area.is_a(PLUGIN):
        return "device"
    if area.is_a(HEAP):
        return "heap"
    if area.is_a(FILE_PRIVATE):
        return "file-private"
    if not area.is_a(ANON_PRIVATE):
        return "other"
    is_stack = area.bytes <= _STACK_AREA and any(
        area.start <= address < area.end for address in process.stacks
    )
    return "stack" if is_stack or area.flags & MAP_GROWSDOWN else "anonymous"


def _row(process: Process, kind: str, name: str, start: int, size: int) -> dict[str, Any]:
    return {
        "pid": process.pid,
        "process": process.name,
        "kind": kind,
        "name": name,
        "start": start,
        "bytes": size,
    }


def _names(images: Path) -> Mapping[int, str]:
    files = read_messages(images, "files.img", "FILES", image_messages().file)
    return {entry.id: text_of(entry.reg.name)[:4096] for entry in files if entry.HasField("reg")}
