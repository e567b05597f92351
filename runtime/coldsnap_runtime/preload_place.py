"""Libraries that a unit's engine is started with, by the plan's `preload:`.

They are mapped, so each generation has its own copies at fixed places, and a capture keeps them.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import read_regular
from coldsnap_runtime.unit_init import INSIDE_CONTROL, INSIDE_ROOT, UnitMount

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

LIBRARIES = {
    "nccl": "libcoldsnap_nccl.so",
    "nvml": "libcoldsnap_nvml.so",
    "mmap": "libcoldsnap_mmap.so",
}
_MAP = "nvml.map"
_SWITCHES = {
    "nccl": {"COLDSNAP_NCCL_BRIDGE": "on"},
    "nvml": {"COLDSNAP_NVML_SHIM": "map", "COLDSNAP_NVML_MAP": f"{INSIDE_CONTROL}/{_MAP}"},
    "mmap": {},
}
_MAX_MAP = 1 << 15


def preload_mounts(folder: Path) -> tuple[UnitMount, ...]:
    """Those of a generation's folder, where its engine finds them."""
    return tuple(
        UnitMount("bind-read-only", os.fspath(folder / name), f"{INSIDE_ROOT}/bin/{name}")
        for name in LIBRARIES.values()
        if (folder / name).is_file()
    )


def put_preloads(wanted: Iterable[str], source: Path, folder: Path) -> tuple[UnitMount, ...]:
    """Copies for a generation that is started.

    Raises:
        ColdSnapError: ``runtime.incomplete``.
    """
    for name in wanted:
        library = LIBRARIES[name]
        if not (source / library).is_file():
            raise ColdSnapError(
                "runtime.incomplete",
                f"{source / library} is missing, and the unit asks for preload: {name}",
                remedy="build and stage the runtime pack again: coldsnap runtime build",
            )
    _copy((LIBRARIES[name] for name in wanted), source, folder)
    return preload_mounts(folder)


def keep_preloads(source: Path, folder: Path) -> tuple[UnitMount, ...]:
    """The captured ones, for a generation that is restored."""
    _copy(LIBRARIES.values(), source, folder)
    return preload_mounts(folder)


def save_preloads(folder: Path, target: Path) -> None:
    """A generation's, into the image that is made of it."""
    _copy(LIBRARIES.values(), folder, target)


def _copy(names: Iterable[str], source: Path, target: Path) -> None:
    for name in names:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
            (target / name).chmod(0o755)


def preload_environment(env: Mapping[str, str], wanted: Sequence[str]) -> dict[str, str]:
    """`env` with the libraries before what it preloads already, and their switches."""
    if not wanted:
        return dict(env)
    places = [f"{INSIDE_ROOT}/bin/{LIBRARIES[name]}" for name in wanted]
    given = env.get("LD_PRELOAD", "")
    made = {key: value for name in wanted for key, value in _SWITCHES[name].items()}
    return {**made, **env, "LD_PRELOAD": ":".join([*places, *([given] if given else [])])}


def remembered_gpus(control: Path, gpus: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """`gpus` with what the engine takes them for, where an earlier restore has moved it."""
    known = {now: (index, uuid) for index, uuid, now in _read_map(control)}
    made = []
    for gpu in gpus:
        index, uuid = known.get(str(gpu["uuid"]), (gpu.get("index"), gpu["uuid"]))
        made.append({**gpu, "remembered": {"index": index, "uuid": uuid}})
    return made


def write_nvml_map(
    control: Path, gpus: Sequence[Mapping[str, Any]], pairs: Iterable[tuple[str, str]]
) -> None:
    """Tell libcoldsnap_nvml which GPUs took the place of the captured ones.

    Args:
        control: of the generation that is restored.
        gpus: of the capture.
        pairs: UUIDs (captured, here); those without are the same.
    """
    moved = dict(pairs)
    lines = []
    for slot, gpu in enumerate(gpus):
        remembered = gpu.get("remembered") or {}
        index = remembered.get("index")
        uuid = remembered.get("uuid", gpu["uuid"])
        now = moved.get(str(gpu["uuid"]), str(gpu["uuid"]))
        lines.append(f"{slot if index is None else index} {uuid} {now}\n")
    temporary = control / f"{_MAP}.new"
    temporary.write_text("".join(lines), encoding="ascii")
    temporary.replace(control / _MAP)


def _read_map(control: Path) -> list[tuple[int, str, str]]:
    try:
        text = read_regular(control / _MAP, _MAX_MAP).decode("ascii")
        rows = [line.split() for line in text.splitlines()]
        return [(int(index), uuid, now) for index, uuid, now in rows]
    except (ColdSnapError, ValueError):
        return []
