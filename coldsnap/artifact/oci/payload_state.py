"""Whether an artifact's payload can be used, by one stat of each pack and what is noted of it.

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


def payload_state(store: Store, manifest: Manifest) -> str:
    """``missing``, ``damaged``, ``quarantined``, or empty for a payload that can be used."""
    fault = payload_fault(store, manifest)
    return "" if fault is None else state_of(fault)


def state_of(fault: ColdSnapError) -> str:
    """In one word: ``missing``, ``damaged`` or ``quarantined``."""
    return _STATES.get(fault.code, "damaged")


def _fault(store: Store, pack: Layer) -> ColdSnapError | None:
    try:
        found = store.blob(pack.digest).lstat().st_size
    except OSError:
        return _error(store, pack, "store.blob-missing", "is missing from")
    if found != pack.size:
        return _error(store, pack, "store.blob-differs", "has another size in")
    if reason := reason_against(store, pack.digest):
        return _error(store, pack, "store.blob-quarantined", "was found damaged in", reason)
    return None


def _error(store: Store, pack: Layer, code: str, said: str, *details: str) -> ColdSnapError:
    message = f"{pack.path} {said} store {store.root}"
    return ColdSnapError(code, message, details=(*details, pack.digest), remedy=PAYLOAD_REMEDY)
