"""What is in a store: list, resolve, inspect. Manifests and descriptors are always re-hashed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.decode import decode, parse
from coldsnap.artifact.descriptor import MAX_DESCRIPTOR_BYTES, Descriptor, read_descriptor
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import read_regular
from coldsnap.artifact.oci.entries import Entry, entries, match
from coldsnap.artifact.oci.media import MAX_MANIFEST_BYTES, Manifest

if TYPE_CHECKING:
    from coldsnap.artifact.oci.layout import Store


@dataclass(frozen=True)
class Artifact:
    """An artifact of a store, its documents checked; its files not yet."""

    digest: str
    """Of the manifest: the artifact's identity."""
    manifest: Manifest
    descriptor: Descriptor
    tags: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(layer.size for layer in self.manifest.layers)


def list_artifacts(store: Store) -> list[Entry]:
    """All artifacts, oldest first."""
    return entries(store.read_index())


def resolve(
    store: Store,
    ref: str | None = None,
    *,
    request_sha256: str | None = None,
    unit: str | None = None,
) -> Artifact | None:
    """The artifact that a tag, a digest or its start names, or the newest one of a request.

    None if there is none. Of a request only an artifact with all its files is taken, so that
    "captured already" is never said of a damaged one.

    Raises:
        ColdSnapError: ``store.ambiguous``, ``store.blob-missing``, ``store.blob-differs``,
            ``artifact.invalid``, ``store.index-invalid``.
    """
    with store.shared():
        found = list_artifacts(store)
        if ref is not None:
            try:
                entry = match(found, ref)
            except ColdSnapError as error:
                if error.code == "store.no-such-artifact":
                    return None
                raise
            return load(store, entry.manifest, entry.tags)
        for entry in reversed(found):
            if entry.request_sha256 != request_sha256 or (unit and unit not in entry.units):
                continue
            artifact = _whole(store, entry)
            if artifact is not None:
                return artifact
        return None


def find(store: Store, ref: str) -> Artifact:
    """As `resolve`, for a reference that must be there.

    Raises:
        ColdSnapError: also ``store.no-such-artifact``.
    """
    with store.shared():
        entry = match(list_artifacts(store), ref)
        return load(store, entry.manifest, entry.tags)


def load(store: Store, digest: str, tags: tuple[str, ...] = ()) -> Artifact:
    """Manifest and descriptor by the manifest's digest; they need not be in the index.

    Raises:
        ColdSnapError: ``store.blob-missing``, ``store.blob-differs``, ``artifact.invalid``,
            ``store.manifest-differs`` when manifest and descriptor name different files.
    """
    what = f"manifest {digest}"
    data = read_blob(store, digest, MAX_MANIFEST_BYTES, what)
    value = parse(data, limit=MAX_MANIFEST_BYTES, what=what, code="store.manifest-invalid")
    manifest = decode(Manifest, value, what=what, code="store.manifest-invalid")
    what = f"descriptor of {digest}"
    data = read_blob(store, manifest.config.digest, MAX_DESCRIPTOR_BYTES, what)
    descriptor = read_descriptor(data, what=what)
    _check_agreement(digest, manifest, descriptor)
    return Artifact(digest, manifest, descriptor, tags)


def missing_files(store: Store, artifact: Artifact) -> list[str]:
    """Paths of files that are not there in their size; one stat each."""
    missing = []
    for layer in artifact.manifest.files():
        try:
            stat = store.blob(layer.digest).lstat()
        except OSError:
            missing.append(layer.path)
            continue
        if stat.st_size != layer.size:
            missing.append(layer.path)
    return missing


def inspect(artifact: Artifact) -> dict[str, Any]:
    """A JSON object for people: the descriptor, and bytes by role and by owner."""
    by_role: dict[str, int] = {}
    by_owner: dict[str, int] = {}
    for layer in artifact.manifest.files():
        by_role[layer.role] = by_role.get(layer.role, 0) + layer.size
        by_owner[layer.owner] = by_owner.get(layer.owner, 0) + layer.size
    return {
        "manifest": artifact.digest,
        "tags": list(artifact.tags),
        "bytes": artifact.bytes,
        "files": len(artifact.manifest.layers),
        "bytes_by_role": dict(sorted(by_role.items())),
        "bytes_by_owner": dict(sorted(by_owner.items())),
        "descriptor": artifact.descriptor.to_json(),
    }


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
            raise ColdSnapError("store.blob-missing", message) from None
        raise
    found = "sha256:" + hashlib.sha256(data).hexdigest()
    if found != digest:
        raise ColdSnapError(
            "store.blob-differs",
            f"{what} is damaged in store {store.root}",
            details=(f"expected {digest}", f"found {found} ({len(data)} bytes)"),
        )
    return data


def _whole(store: Store, entry: Entry) -> Artifact | None:
    try:
        artifact = load(store, entry.manifest, entry.tags)
    except ColdSnapError:
        return None
    return None if missing_files(store, artifact) else artifact


def _check_agreement(digest: str, manifest: Manifest, descriptor: Descriptor) -> None:
    layers = {(f.path, f.role, f.owner, f.digest, f.size) for f in manifest.files()}
    objects = {(o.path, o.role, o.owner, o.sha256, o.bytes) for o in descriptor.objects()}
    if layers != objects:
        path = min(layers ^ objects)[0]
        message = f"manifest {digest} and its descriptor disagree about {path!r}"
        raise ColdSnapError("store.manifest-differs", message)
