"""Which processes of an image have a file mapped."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from coldsnap_runtime.process_image.image_file import read_messages
from coldsnap_runtime.process_image.image_messages import image_messages
from coldsnap_runtime.process_image.memory_areas import FILE_PRIVATE
from coldsnap_runtime.process_image.process_image import read_process_image


def processes_without(images: Path, pids: Iterable[int], path: str) -> list[tuple[int, str]]:
    """Number and name of those of `pids` that have the file `path`, as the unit saw it, not mapped.

    Raises:
        ColdSnapError: ``image.damaged``, ``image.unsupported``.
    """
    files = read_messages(images, "files.img", "FILES", image_messages().file)
    ids = {entry.id for entry in files if entry.HasField("reg") and entry.reg.name == path}
    wanted = set(pids)
    return [
        (process.pid, process.name)
        for process in read_process_image(images).processes
        if process.pid in wanted
        and not any(vma.status & FILE_PRIVATE and vma.shmid in ids for vma in process.mm.vmas)
    ]
