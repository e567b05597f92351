"""The memory guard of a unit: a library preloaded at the engine's first start.

With it a restore may map the image copy-on-write (``image_mode: mmap``): calls that would show
old bytes where a program expects zeros are made right. It is mapped, so it travels with the image.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.unit_init import INSIDE_IMAGE, INSIDE_ROOT, UnitMount
from coldsnap_runtime.unit_processes import mentions, proc_of, processes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from coldsnap_runtime.unit_requests import LaunchSpec

GUARD = "libcoldsnap_guard.so"
INSIDE_GUARD = f"{INSIDE_ROOT}/bin/{GUARD}"
_ALLOCATORS = re.compile(r"/(lib)?(jemalloc|tcmalloc|mimalloc)[^/]*$")


def guard_mounts(folder: Path) -> tuple[UnitMount, ...]:
    """The guard of a capture's or generation's folder, if it has one."""
    guard = folder / GUARD
    if not guard.is_file():
        return ()
    return (UnitMount("bind-read-only", os.fspath(guard), INSIDE_GUARD),)


def put_guard(spec: LaunchSpec, source: Path, folder: Path) -> tuple[UnitMount, ...]:
    """A copy of the guard for a generation that asked for one.

    Raises:
        ColdSnapError: ``runtime.incomplete``.
    """
    if not spec.memory_guard:
        return ()
    if not source.is_file():
        raise ColdSnapError(
            "runtime.incomplete",
            f"{source} is missing, and the unit asks for memory_guard",
            remedy="build and stage the runtime pack again: coldsnap runtime build",
        )
    shutil.copyfile(source, folder / GUARD)
    (folder / GUARD).chmod(0o755)
    return guard_mounts(folder)


def keep_guard(image: Path, folder: Path) -> tuple[UnitMount, ...]:
    """The captured guard as a restored generation's own copy, so that it can be captured again."""
    if (image / "bin" / GUARD).is_file():
        shutil.copyfile(image / "bin" / GUARD, folder / GUARD)
        (folder / GUARD).chmod(0o755)
    return guard_mounts(folder)


def preloaded(env: Mapping[str, str]) -> dict[str, str]:
    """`env` with the guard before what it preloads already."""
    given = env.get("LD_PRELOAD", "")
    return {**env, "LD_PRELOAD": f"{INSIDE_GUARD}:{given}" if given else INSIDE_GUARD}


def refuse_mapped_image(init_pid: int, root_pid: int) -> None:
    """Raises ColdSnapError ``checkpoint.image-mapped`` for a tree that lives on an image.

    A dump of it would hold only the pages written since, and need that image for ever.
    """
    for process in processes(init_pid, root_pid):
        if mentions(proc_of(init_pid) / str(process.pid) / "maps", f"{INSIDE_IMAGE}/"):
            raise ColdSnapError(
                "checkpoint.image-mapped",
                f"process {process.pid} ({process.name}) of the unit maps the image that it was "
                "restored from (image_mode: mmap)",
                cause="a dump would hold only what was written since, and need that image for ever",
                remedy="restore the unit with image_mode: ext, then capture that generation",
            )


def foreign_allocator(paths: Iterable[str]) -> str:
    """The first mapped file that is an allocator which relies on purged pages being zero."""
    return next((path for path in paths if _ALLOCATORS.search(path)), "")


def why_no_mmap(launch: Mapping[str, Any], mapped: Iterable[str]) -> str:
    """The reason for which a unit must not be restored by mapping; empty if there is none."""
    if not launch.get("memory_guard"):
        return "the unit was launched without memory_guard"
    allocator = foreign_allocator(mapped)
    return f"{allocator} is mapped, and relies on purged pages being zero" if allocator else ""
