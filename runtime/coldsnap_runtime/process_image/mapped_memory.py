"""``mmap``: moved memory as private mappings of the original pages files.

CRIU opens such a file like any other that a process has mapped: by the path that the unit sees.
It checks the size; the mode is left out, so that it need not be the same on every host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from coldsnap_runtime.process_image.image_errors import damaged, unsupported
from coldsnap_runtime.process_image.image_file import read_messages
from coldsnap_runtime.process_image.image_messages import image_messages, text_of
from coldsnap_runtime.process_image.memory_areas import FILE_PRIVATE, MAP_ANONYMOUS, REGULAR
from coldsnap_runtime.process_image.process_image import ProcessImage
from coldsnap_runtime.process_image.rewrite_plan import Piece, ProcessPlan
from coldsnap_runtime.unit_init import INSIDE_IMAGE

_REGULAR_FILE: Final = 1
_TOP_ID: Final = 1 << 31
"""CRIU marks ghosts above it."""


@dataclass(frozen=True)
class MappedFiles:
    messages: list[Any]
    """Of the new files.img."""
    ids: Mapping[int, int]
    """Process -> id of its pages file in there."""


def mapped_files(image: ProcessImage, plans: list[ProcessPlan]) -> MappedFiles:
    """files.img with an entry for the pages file of each process.

    Raises:
        ColdSnapError: ``image.unsupported`` if the image was made of a unit that is itself
            restored so.
    """
    files = read_messages(image.folder, "files.img", "FILES", image_messages().file)
    for entry in files:
        if entry.HasField("reg") and text_of(entry.reg.name).startswith(f"{INSIDE_IMAGE}/"):
            raise unsupported("its memory is mapped from an older image (restored by mmap)")
    first = max(entry.id for entry in files) + 1
    if first + len(plans) >= _TOP_ID:
        raise damaged("files.img", "there are no numbers left")
    ids = {plan.process.pid: first + number for number, plan in enumerate(plans)}
    new = [_file(plan, ids[plan.process.pid]) for plan in plans]
    return MappedFiles([*files, *new], ids)


def with_mappings(plan: ProcessPlan, file_id: int) -> Any:
    """A copy of the process's mm message in which the moved pieces are mappings."""
    mm = type(plan.process.mm)()
    mm.CopyFrom(plan.process.mm)
    del mm.vmas[:]
    at = 0
    for area in plan.process.areas:
        start = area.start
        while at < len(plan.pieces) and plan.pieces[at].span.end <= area.end:
            piece = plan.pieces[at]
            _add(mm, area.message, start, piece.span.start)
            _change(_add(mm, area.message, piece.span.start, piece.span.end), piece, file_id)
            start = piece.span.end
            at += 1
        _add(mm, area.message, start, area.end)
    mm.vmas.extend(plan.process.mm.vmas[len(plan.process.areas) :])  # what is guarded comes last
    return mm


def _add(mm: Any, original: Any, start: int, end: int) -> Any:
    """The part of an area from `start` to `end`; nothing if it is empty."""
    if start == end:
        return None
    part = mm.vmas.add()
    part.CopyFrom(original)
    part.start, part.end = start, end
    return part


def _change(part: Any, piece: Piece, file_id: int) -> None:
    (run,) = piece.runs
    part.status = REGULAR | FILE_PRIVATE
    part.flags &= ~MAP_ANONYMOUS
    part.shmid = file_id
    part.pgoff = run.offset
    part.fdflags = 0  # O_RDONLY


def _file(plan: ProcessPlan, file_id: int) -> Any:
    entry = image_messages().file(type=_REGULAR_FILE, id=file_id)
    pages = plan.process.pages
    file = entry.reg
    file.id, file.flags, file.pos = file_id, 0, 0
    file.name = f"{INSIDE_IMAGE}/{pages.pages_name}"
    file.size = pages.pages_bytes
    owner = file.fown
    owner.uid = owner.euid = owner.signum = owner.pid_type = owner.pid = 0
    return entry
