"""Rewriting an image so that CRIU need not read its pages: a small overlay beside the original.

``ext`` takes pages out of the page maps and asks for huge ones where they lie densely;
``coldsnap-fill`` writes them into the restored processes. ``mmap`` turns their memory into private
mappings of the original pages files. The original is not touched, and its pages are never copied
but for the few that stay with CRIU.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from coldsnap.artifact.files import file_error, fsync_dir, write_new
from coldsnap_runtime.process_image.fill_program import seal
from coldsnap_runtime.process_image.huge_advice import advised, with_huge_advice
from coldsnap_runtime.process_image.image_errors import damaged
from coldsnap_runtime.process_image.image_file import encode_messages
from coldsnap_runtime.process_image.mapped_memory import mapped_files, with_mappings
from coldsnap_runtime.process_image.page_map import Run, page_map_entry, without
from coldsnap_runtime.process_image.process_image import ProcessImage, read_process_image
from coldsnap_runtime.process_image.rewrite_plan import (
    ProcessPlan,
    index_of,
    kept_by_reason,
    plan_rewrite,
)

Mode = Literal["ext", "mmap"]

INDEX_NAME: Final = "fill.index"
_READ_ONLY: Final = 0o400
_COPY_BYTES: Final = 8 << 20


@dataclass(frozen=True)
class Moved:
    """What was taken from one process."""

    pid: int
    name: str
    bytes_moved: int
    bytes_kept: int
    """Pages that CRIU reads itself."""
    areas: int
    runs: int
    bytes_huge: int
    """Of `bytes_moved`, in areas that are asked to have huge pages."""


@dataclass(frozen=True)
class Rewritten:
    mode: Mode
    bytes_moved: int
    bytes_kept: int
    areas: int
    runs: int
    bytes_huge: int
    processes: tuple[Moved, ...]
    kept: Mapping[str, int]
    """Bytes of `bytes_kept` by why they stay, the most first: what the next cut could take."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def rewrite(images: Path, target: Path, mode: Mode, fill_program: Path) -> Rewritten:
    """Make the overlay of `mode` for the images in `images`.

    Args:
        images: as CRIU wrote them; only read.
        target: the folder to make; it must not exist. It appears whole and on disk, or not at
            all. Its files replace those of the same name for CRIU; ``fill.index`` is ours.
        mode: ``ext`` or ``mmap``.
        fill_program: ``coldsnap-fill``, which computes the digests of what is moved.

    Raises:
        ColdSnapError: ``image.unsupported`` (also if nothing is worth moving),
            ``image.damaged``, ``image.seal-failed``, ``file.*``.
    """
    image = read_process_image(images)
    plans = plan_rewrite(image, is_mapped=mode == "mmap")
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(mode=0o700)
        _write(image, plans, mode, partial)
        index = index_of(plans, is_mapped=mode == "mmap")
        write_new(partial / INDEX_NAME, index.encoded(), 0o600)
        seal(fill_program, partial / INDEX_NAME, images)
        _make_lasting(partial)
        partial.rename(target)
        fsync_dir(target.parent)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError):
            raise file_error(error, target) from error
        raise
    return _summary(image, plans, mode)


def _write(image: ProcessImage, plans: list[ProcessPlan], mode: Mode, folder: Path) -> None:
    changed = mapped_files(image, plans) if mode == "mmap" else None
    if changed is not None:
        write_new(folder / "files.img", encode_messages("FILES", changed.messages), _READ_ONLY)
    for plan in plans:
        process = plan.process
        kept = without(process.pages.runs, plan.runs)
        entries = [process.pages.head, *map(page_map_entry, kept)]
        name = f"pagemap-{process.pid}.img"
        write_new(folder / name, encode_messages("PAGEMAP", entries), _READ_ONLY)
        pages = process.pages.pages_name
        _copy(image.folder / pages, folder / pages, kept, process.pages.pages_bytes)
        if changed is not None:
            mm = with_mappings(plan, changed.ids[process.pid])
            name = f"mm-{process.pid}.img"
            write_new(folder / name, encode_messages("MM", [mm]), _READ_ONLY)
        elif (mm := with_huge_advice(plan)) is not None:
            name = f"mm-{process.pid}.img"
            write_new(folder / name, encode_messages("MM", [mm]), _READ_ONLY)


def _copy(source: Path, target: Path, runs: list[Run], size: int) -> None:
    """Write `runs` of `source`, one after the other."""
    reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(reading).st_size != size:
            raise damaged(source.name, "it changed while it was read")
        with target.open("xb") as file:
            for block in _blocks(reading, source.name, runs):
                file.write(block)
    finally:
        os.close(reading)


def _blocks(reading: int, name: str, runs: list[Run]) -> Iterator[bytes]:
    for run in runs:
        done = 0
        while done < run.bytes:
            block = os.pread(reading, min(_COPY_BYTES, run.bytes - done), run.offset + done)
            if not block:
                raise damaged(name, "it changed while it was read")
            done += len(block)
            yield block


def _make_lasting(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        path.chmod(_READ_ONLY)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    fsync_dir(folder)


def _summary(image: ProcessImage, plans: list[ProcessPlan], mode: Mode) -> Rewritten:
    total = sum(process.pages.pages_bytes for process in image.processes)
    moved = tuple(
        Moved(
            pid=plan.process.pid,
            name=plan.process.name,
            bytes_moved=plan.bytes_moved,
            bytes_kept=plan.bytes_kept,
            areas=len(plan.pieces),
            runs=len(plan.runs),
            bytes_huge=sum(advised(plan).values()) if mode == "ext" else 0,
        )
        for plan in plans
    )
    return Rewritten(
        mode=mode,
        bytes_moved=sum(item.bytes_moved for item in moved),
        bytes_kept=total - sum(item.bytes_moved for item in moved),
        areas=sum(item.areas for item in moved),
        runs=sum(item.runs for item in moved),
        bytes_huge=sum(item.bytes_huge for item in moved),
        processes=moved,
        kept=kept_by_reason(image, plans),
    )
