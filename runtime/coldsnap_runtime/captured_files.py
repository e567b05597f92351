"""From what a dump left to what an artifact holds: roles, owners, places, and evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coldsnap.artifact import canonical
from coldsnap.artifact.files import fsync_dir, write_atomic
from coldsnap.artifact.measure import EVIDENCE, Evidence, Measured
from coldsnap.artifact.validation import content_identity
from coldsnap.artifact.weights import (
    PAYLOAD_INDEX_ROLE,
    PAYLOAD_ROLE,
    index_path,
    pack_path,
)

_ROLES = {"criu": "criu-image", "payload": PAYLOAD_ROLE, "payload-index": PAYLOAD_INDEX_ROLE}
"""The dump's names of roles where the artifact has others."""


def arranged(folder: Path, result: dict[str, Any], unit: str) -> dict[str, Any]:
    """The result of a dump as the artifact wants it; payload files are moved to their address.

    Files keep their bytes and were hashed a moment ago: the evidence of that is written beside
    them, so that publishing needs no second pass.
    """
    payloads = _move_payloads(folder, result["payloads"], unit)
    objects = [_object(item, unit) for item in result["objects"]]
    _write_evidence(folder, [*objects, *payloads])
    return {
        **result,
        "objects": objects,
        "payloads": payloads,
        "sizes": {name: size for name, size in result["sizes"].items() if size is not None},
        "mapped_files": [_mapped(item, unit) for item in result["mapped_files"]],
    }


def _object(item: dict[str, Any], unit: str) -> dict[str, Any]:
    role = _ROLES.get(item["role"], item["role"])
    return {**item, "role": role, "owner": f"unit/{unit}"}


def _move_payloads(folder: Path, items: list[dict[str, Any]], unit: str) -> list[dict[str, Any]]:
    """To ``model-payloads/sha256/<hex>.pack`` and ``.index.json``, by the pack's digest."""
    packs = [item for item in items if item["role"] == "payload"]
    if not packs:
        return []
    digest = packs[0]["sha256"]
    moved = []
    for item in items:
        path = pack_path(digest) if item["role"] == "payload" else index_path(digest)
        (folder / path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / item["path"]).rename(folder / path)
        moved.append({**_object(item, unit), "path": path})
    fsync_dir((folder / moved[0]["path"]).parent)
    return moved


def _write_evidence(folder: Path, items: list[dict[str, Any]]) -> None:
    files = {}
    for item in items:
        identity = content_identity((folder / item["path"]).lstat())
        files[item["path"]] = Measured(item["bytes"], item["sha256"], identity)
    data = canonical.dumps(Evidence(files).to_json()).encode("ascii")
    write_atomic(folder / EVIDENCE, data)


def _mapped(item: dict[str, Any], unit: str) -> dict[str, Any]:
    kept = {name: item[name] for name in ("path", "bytes", "mtime_ns")}
    if item.get("sha256"):
        kept["sha256"] = item["sha256"]
    return {**kept, "unit": unit}
