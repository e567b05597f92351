"""What is in a store: list, resolve, inspect. Manifests and descriptors are always re-hashed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.decode import decode
from coldsnap.artifact.descriptor import Descriptor
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.oci.contents import load_contents
from coldsnap.artifact.oci.entries import Entry, entries, match
from coldsnap.artifact.oci.media import Manifest

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
    found = load_contents(store, digest)
    descriptor = decode(Descriptor, found.descriptor, what=f"descriptor of {digest}")
    return Artifact(digest, found.manifest, descriptor, tags)


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


def _whole(store: Store, entry: Entry) -> Artifact | None:
    try:
        artifact = load(store, entry.manifest, entry.tags)
    except ColdSnapError:
        return None
    return None if missing_files(store, artifact) else artifact
