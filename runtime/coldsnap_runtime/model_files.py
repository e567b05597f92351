"""The model's folder as it was at the capture: what recovery reads must be the same files.

Names, sizes and modification times of all files that are not hidden; digests where the plan pins
them (``model.digests``), which are then what counts.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.unit_placement import mount_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coldsnap_runtime.mapped_files import DigestCache
    from coldsnap_runtime.unit_requests import LaunchSpec, Mount

_MOST_FILES = 4096
_DEPTH = 4
_SHOWN = 5
_REMEDY = "put the captured model back, or capture again with this one"


def record_model(model: Any, spec: LaunchSpec) -> dict[str, Any] | None:
    """``{path, source, revision, digests, files: {name: [bytes, mtime_ns]}}``.

    None for a model without a folder, and for one with more files than a model has.
    """
    path = str(model.get("path") or "") if isinstance(model, dict) else ""
    if not path:
        return None
    mount = mount_of(spec, path)
    source = path if mount is None else mount.source + path[len(mount.target.rstrip("/")) :]
    files = _files(Path(source))
    if not files or len(files) > _MOST_FILES:
        return None
    return {
        "path": path,
        "source": source,
        "revision": str(model.get("revision") or ""),
        "digests": dict(model.get("digests") or {}),
        "files": files,
    }


def model_fault(
    recorded: Mapping[str, Any] | None, mounts: Sequence[Mount], known: DigestCache | None = None
) -> ColdSnapError | None:
    """Why the weights cannot be rebuilt from the model's folder; None if they can.

    A capture that recorded nothing of its model is believed.
    """
    if not recorded:
        return None
    folder = _here(recorded, mounts)
    if not folder.is_dir():
        return ColdSnapError(
            "recovery.model-missing",
            f"the model's folder {folder} is not there",
            details=("the weights would be rebuilt from it",),
            remedy="bring the model to this host, or give its place with mounts: in the plan",
        )
    found, wanted = _files(folder), dict(recorded.get("files") or {})
    pinned = dict(recorded.get("digests") or {})
    differences = _differences(wanted, found, pinned)
    differences += _wrong_digests(folder, pinned, known)
    if not differences:
        return None
    return ColdSnapError(
        "recovery.model-changed",
        f"the model's folder {folder} is not what was captured: {differences[0]}",
        details=tuple(differences[1:_SHOWN]),
        cause="the same names and sizes can hold other weights",
        remedy=_REMEDY,
    )


def _here(recorded: Mapping[str, Any], mounts: Sequence[Mount]) -> Path:
    path = str(recorded.get("path") or "")
    for mount in sorted(mounts, key=lambda mount: -len(mount.target)):
        target = mount.target.rstrip("/")
        if path == target or path.startswith(f"{target}/"):
            return Path(mount.source + path[len(target) :])
    return Path(str(recorded.get("source") or path))


def _differences(
    wanted: Mapping[str, Any], found: Mapping[str, Any], pinned: Mapping[str, str]
) -> list[str]:
    told = [f"{name} is missing" for name in sorted(set(wanted) - set(found))]
    told += [f"{name} is new" for name in sorted(set(found) - set(wanted))]
    for name in sorted(set(wanted) & set(found)):
        (size, mtime), (size_now, mtime_now) = wanted[name], found[name]
        if size != size_now:
            told.append(f"{name} has {size_now} bytes, had {size}")
        elif mtime != mtime_now and name not in pinned:
            told.append(f"{name} was written since")
    return told


def _wrong_digests(
    folder: Path, pinned: Mapping[str, str], known: DigestCache | None
) -> Iterator[str]:
    for name, digest in sorted(pinned.items()):
        path = folder / name
        if known is not None and path.is_file() and known.digest(path) != digest:
            yield f"{name} is not {digest}"


def _files(folder: Path) -> dict[str, list[int]]:
    """Name -> [bytes, mtime_ns]; links are followed, as the Hub's cache has them."""
    found: dict[str, list[int]] = {}

    def walk(place: Path, prefix: str, depth: int) -> None:
        try:
            entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        except OSError:
            return
        for entry in entries:
            if entry.name.startswith(".") or len(found) > _MOST_FILES:
                continue
            try:
                facts = entry.stat()
            except OSError:  # a link that leads nowhere
                found[prefix + entry.name] = [-1, 0]
                continue
            if stat.S_ISDIR(facts.st_mode) and depth:
                walk(Path(entry.path), f"{prefix}{entry.name}/", depth - 1)
            elif stat.S_ISREG(facts.st_mode):
                found[prefix + entry.name] = [facts.st_size, facts.st_mtime_ns]

    walk(folder, "", _DEPTH)
    return found
