"""The end of a capture: everything hashed, synced and named, or nothing there."""

from __future__ import annotations

import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.canonical import dumps
from coldsnap.artifact.files import fsync_dir, sha256_file, write_new
from coldsnap.artifact.pack_index import read_index
from coldsnap_runtime.payload_draft import damaged_payload, finish_payload
from coldsnap_runtime.unit_capture import CAPTURE_FILE, Capture, object_of

if TYPE_CHECKING:
    from pathlib import Path

    from coldsnap_runtime.timing import Timing

_MOST_THREADS = 8
_PAYLOAD = "payload"


def seal(capture: Capture, partial: Path, folder: Path, timing: Timing) -> dict[str, Any]:
    """Write the map, hash and sync everything, and give the folder its name."""
    write_new(partial / CAPTURE_FILE, dumps(capture.to_json()).encode("ascii"))
    with timing.span("hash"), ThreadPoolExecutor(_threads()) as pool:
        # The longest first: a payload's SHA-256 is the work of one core, the others hash the rest.
        payload = pool.submit(finish_payload, partial / _PAYLOAD, _threads())
        digests = dict(zip(rest := _files(partial), pool.map(_hash_and_sync, rest), strict=True))
        digests |= payload.result()
        left = sorted({path for path in partial.rglob("*") if path.is_file()} - set(digests))
        digests |= zip(left, pool.map(_hash_and_sync, left), strict=True)
    objects = [object_of(partial, path, digests[path]) for path in sorted(digests)]
    _check_payload(partial, objects)
    for path in [partial, *(p for p in partial.iterdir() if p.is_dir())]:
        fsync_dir(path)
    remove(folder)
    partial.rename(folder)
    fsync_dir(folder.parent)
    payloads = [item for item in objects if item["role"].startswith("payload")]
    captured = [item for item in objects if not item["role"].startswith("payload")]
    return {
        "objects": captured,
        "payloads": payloads,
        "sizes": _sizes(capture, objects),
        "mapped_files": [file.to_json() for file in capture.mapped_files],
        "processes": capture.to_json()["processes"],
        "cuda": capture.cuda,
        "process_image": capture.process_image,
        "template": capture.template,
    }


def _files(partial: Path) -> list[Path]:
    """All but the payload's."""
    paths = sorted(path for path in partial.rglob("*") if path.is_file())
    return [path for path in paths if path.relative_to(partial).parts[0] != _PAYLOAD]


def _check_payload(partial: Path, objects: list[dict[str, Any]]) -> None:
    """A pack that its disk damaged since the engine wrote it must not become an artifact.

    Raises:
        ColdSnapError: ``checkpoint.payload-damaged``, ``pack.index-invalid``.
    """
    rows = {item["role"]: item for item in objects if item["role"].startswith("payload")}
    if not rows:
        return
    pack, index = rows.get("payload"), rows.get("payload-index")
    if pack is not None and index is not None:
        body = read_index((partial / index["path"]).read_bytes()).body
        if (body.bytes, body.sha256) == (pack["bytes"], pack["sha256"]):
            return
    raise damaged_payload()


def _hash_and_sync(path: Path) -> str:
    path.chmod(stat.S_IRUSR)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return sha256_file(path)


def _sizes(capture: Capture, objects: list[dict[str, Any]]) -> dict[str, int | None]:
    def total(*roles: str) -> int:
        return sum(item["bytes"] for item in objects if item["role"] in roles)

    sets = {record.name: record.bytes for record in capture.file_sets}
    return {
        "process": total("criu"),
        "payload": total("payload"),
        "shm": sets.get("shm", 0),
        "tmp": sets.get("tmp", 0),
        "caches": sum(size for name, size in sets.items() if name.startswith("cache-")),
        "kv_discarded": None,  # only the engine knows
    }


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _threads() -> int:
    """Hashing leaves the interpreter's lock; the engine that serves meanwhile needs processors."""
    return max(1, min(_MOST_THREADS, (os.cpu_count() or 1) // 2))
