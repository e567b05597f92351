"""What an artifact consists of: manifest and descriptor as they lie in the store, re-hashed.

The descriptor is JSON here, not yet checked field by field (`coldsnap.artifact.oci.read.load`
does that): who only lays the files out needs no more than that both documents name the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.decode import decode, parse
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import read_regular
from coldsnap.artifact.oci.media import MAX_DESCRIPTOR_BYTES, MAX_MANIFEST_BYTES, Manifest

if TYPE_CHECKING:
    from coldsnap.artifact.oci.layout import Store


_FACTS = ("path", "role", "owner", "sha256", "bytes")
"""Of a file, as the descriptor has them."""
_REMEDY = "capture it again, or copy the file from another store; check the store's disk"


@dataclass(frozen=True)
class Contents:
    digest: str
    """Of the manifest: the artifact's identity."""
    manifest: Manifest
    descriptor: Mapping[str, Any]


def load_contents(store: Store, digest: str) -> Contents:
    """Manifest and descriptor by the manifest's digest; they need not be in the index.

    Raises:
        ColdSnapError: ``store.blob-missing``, ``store.blob-differs``, ``store.manifest-invalid``,
            ``artifact.invalid``, ``store.manifest-differs`` when manifest and descriptor name
            different files.
    """
    what = f"manifest {digest}"
    data = read_blob(store, digest, MAX_MANIFEST_BYTES, what)
    value = parse(data, limit=MAX_MANIFEST_BYTES, what=what, code="store.manifest-invalid")
    manifest = decode(Manifest, value, what=what, code="store.manifest-invalid")
    what = f"descriptor of {digest}"
    data = read_blob(store, manifest.config.digest, MAX_DESCRIPTOR_BYTES, what)
    descriptor = parse(data, limit=MAX_DESCRIPTOR_BYTES, what=what)
    layers = {(f.path, f.role, f.owner, f.digest, f.size) for f in manifest.files()}
    differing = layers ^ _described(descriptor, what)
    if differing:
        path = min(str(fact[0]) for fact in differing)
        message = f"manifest {digest} and its descriptor disagree about {path!r}"
        raise ColdSnapError("store.manifest-differs", message)
    return Contents(digest, manifest, descriptor)


def read_blob(store: Store, digest: str, limit: int, what: str) -> bytes:
    """A small blob, hashed.

    Raises:
        ColdSnapError: ``store.blob-missing``, ``store.blob-differs``, ``file.too-large``.
    """
    path = store.blob(digest)
    try:
        data = read_regular(path, limit)
    except ColdSnapError as error:
        if error.code == "file.missing":
            message = f"{what} is missing from store {store.root}"
            raise ColdSnapError("store.blob-missing", message, remedy=_REMEDY) from None
        error.remedy = error.remedy or _REMEDY
        raise
    found = "sha256:" + hashlib.sha256(data).hexdigest()
    if found != digest:
        raise ColdSnapError(
            "store.blob-differs",
            f"{what} is damaged in store {store.root}",
            details=(f"expected {digest}", f"found {found} ({len(data)} bytes)"),
            remedy=_REMEDY,
        )
    return data


def _described(descriptor: Any, what: str) -> set[tuple[Any, ...]]:
    """The files that the descriptor names: the capsule's and the payload packs."""
    try:
        payloads = descriptor["weights"].get("model_payloads") or {"objects": ()}
        files = [*descriptor["capsule"]["objects"], *payloads["objects"]]
        return {tuple(file[name] for name in _FACTS) for file in files}
    except (KeyError, TypeError, AttributeError):
        raise ColdSnapError("artifact.invalid", f"{what}: does not name its files") from None
