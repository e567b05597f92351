"""Whether an artifact can be used, by one stat of each file and what is noted of its payload.

For previews and lists: cheap, and no proof. Who uses a payload verifies it (`materialise`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.oci.quarantine import reason_against
from coldsnap.artifact.pack_index import PAYLOAD_REMEDY
from coldsnap.artifact.weights import PAYLOAD_INDEX_ROLE, PAYLOAD_ROLE

if TYPE_CHECKING:
    from coldsnap.artifact.oci.layout import Store
    from coldsnap.artifact.oci.media import Layer, Manifest

_CAPSULE_REMEDY = "capture it again, or copy the file from another store"

_STATES = {
    "store.blob-missing": "missing",
    "store.blob-differs": "damaged",
    "store.blob-quarantined": "quarantined",
}


def payload_fault(store: Store, manifest: Manifest) -> ColdSnapError | None:
    """Why the payload cannot be used, as a native restore would say it; None for a sound one.

    Codes: ``store.blob-missing``, ``store.blob-differs`` (another size),
    ``store.blob-quarantined``.
    """
    packs = [x for x in manifest.files() if x.role in (PAYLOAD_ROLE, PAYLOAD_INDEX_ROLE)]
    return next((fault for fault in (_fault(store, pack) for pack in packs) if fault), None)


def capsule_fault(store: Store, manifest: Manifest) -> ColdSnapError | None:
    """The first file of the capsule that is not there in its size, by one stat each; else None.

    Codes: ``store.blob-missing``, ``store.blob-differs``.
    """
    for layer in manifest.files():
        if layer.role in (PAYLOAD_ROLE, PAYLOAD_INDEX_ROLE):
            continue
        fault = _size_fault(store, layer, _CAPSULE_REMEDY)
        if fault is not None:
            return fault
    return None


def payload_state(store: Store, manifest: Manifest) -> str:
    """``missing``, ``damaged``, ``quarantined``, or empty for a payload that can be used."""
    fault = payload_fault(store, manifest)
    return "" if fault is None else state_of(fault)


def state_of(fault: ColdSnapError) -> str:
    """In one word: ``missing``, ``damaged`` or ``quarantined``."""
    return _STATES.get(fault.code, "damaged")


def _fault(store: Store, pack: Layer) -> ColdSnapError | None:
    if fault := _size_fault(store, pack, PAYLOAD_REMEDY):
        return fault
    if reason := reason_against(store, pack.digest):
        message = f"{pack.path} was found damaged in store {store.root}"
        return ColdSnapError(
            "store.blob-quarantined",
            message,
            details=(reason, pack.digest),
            remedy=PAYLOAD_REMEDY,
        )
    return None


def _size_fault(store: Store, layer: Layer, remedy: str) -> ColdSnapError | None:
    try:
        found = store.blob(layer.digest).lstat().st_size
    except OSError:
        code, said = "store.blob-missing", "is missing from"
    else:
        if found == layer.size:
            return None
        code, said = "store.blob-differs", "is cut or has grown in"
    message = f"{layer.path} {said} store {store.root}"
    return ColdSnapError(code, message, details=(layer.digest,), remedy=remedy)
