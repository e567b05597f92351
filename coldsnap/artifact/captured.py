"""From what a checkpoint on a target reports to what a descriptor says.

The runtime speaks of its folder: who a file belongs to inside the unit, the payload under the
name that the engine gave it. The descriptor speaks of the artifact: owners are units and workers,
a payload pack lies at the address of its content. Anything that is not recognised is passed on
unchanged, so that the strict decode that follows names it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from coldsnap.artifact.rules import OWNER
from coldsnap.artifact.weights import PAYLOAD_INDEX_ROLE, PAYLOAD_ROLE, index_path, pack_path

EXPORTED = {
    PAYLOAD_ROLE: "payload/payload.pack",
    PAYLOAD_INDEX_ROLE: "payload/payload.index.json",
}
"""Where a capture folder has an engine's payload, by role."""

_ROLES = {"payload": PAYLOAD_ROLE, "payload-index": PAYLOAD_INDEX_ROLE}


def described_objects(items: Sequence[Any], unit: str) -> list[Any]:
    """Files of a capture folder, owned by `unit` where they name no owner of an artifact."""
    return [_described(item, unit) if isinstance(item, dict) else item for item in items]


def described_payloads(items: Sequence[Any], unit: str, worker: str) -> tuple[list[Any], list[Any]]:
    """(packs, indexes) at the addresses of their packs, owned by `worker` and by `unit`."""
    objects = described_objects(items, unit)
    packs = [item for item in objects if _role(item) != PAYLOAD_INDEX_ROLE]
    indexes = [item for item in objects if _role(item) == PAYLOAD_INDEX_ROLE]
    for item in filter(_is_object, packs):
        if not str(item.get("owner")).startswith("worker/"):
            item["owner"] = f"worker/{worker}"
        if item.get("path") == EXPORTED[PAYLOAD_ROLE]:
            item["path"] = pack_path(str(item.get("sha256")))
    for item in indexes:
        # One exported payload per unit: its index is that of its pack.
        if (
            item.get("path") == EXPORTED[PAYLOAD_INDEX_ROLE]
            and len(packs) == 1
            and _is_object(packs[0])
        ):
            item["path"] = index_path(str(packs[0].get("sha256")))
    return packs, indexes


def described_extensions(value: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes that are not known are left out; of mapped files what identifies them is kept."""
    result = dict(value)
    sizes = value.get("sizes")
    if isinstance(sizes, Mapping):
        result["sizes"] = {name: size for name, size in sizes.items() if size is not None}
    files = value.get("mapped_files")
    if isinstance(files, (list, tuple)):
        result["mapped_files"] = [_mapped(item) for item in files]
    return result


def _described(item: dict[str, Any], unit: str) -> dict[str, Any]:
    owner = item.get("owner")
    owned = isinstance(owner, str) and re.fullmatch(OWNER, owner)
    role = item.get("role")
    return {
        **item,
        "owner": owner if owned else f"unit/{unit}",
        "role": _ROLES.get(role, role) if isinstance(role, str) else role,
    }


def _mapped(item: Any) -> Any:
    if not isinstance(item, Mapping):
        return item
    kept = {name: item[name] for name in ("path", "bytes", "mtime_ns", "unit") if name in item}
    # A file that is only written to, such as a log, has no digest: it may have grown since.
    return kept | ({"sha256": item["sha256"]} if item.get("sha256") else {})


def _is_object(item: Any) -> bool:
    return isinstance(item, dict)


def _role(item: Any) -> Any:
    return item.get("role") if isinstance(item, Mapping) else None
