"""Putting a capture into a store: hard links where possible, digests checked, one atomic index.

Order: every file durable under its digest, then the descriptor, then the manifest, then the
index. A crash before the last leaves unreferenced blobs; the next publish finds them, the next
collection removes them if there is none.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from coldsnap.artifact.descriptor import Descriptor, complete
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import file_error, fsync_dir, write_new
from coldsnap.artifact.oci import media
from coldsnap.artifact.oci.entries import check_tags, entries, insert, retag
from coldsnap.artifact.oci.ingest import put_files
from coldsnap.artifact.oci.layout import Store, create_store, read_only


@dataclass(frozen=True)
class Published:
    manifest: str
    """Digest: the artifact's identity."""
    descriptor: Descriptor
    bytes: int
    """Of all files."""
    bytes_added: int
    """Of files that the store did not have."""
    bytes_copied: int
    """Of files that could not be linked, because they lie on another file system."""

    def to_json(self) -> dict[str, Any]:
        return {
            "manifest": self.manifest,
            "bytes": self.bytes,
            "bytes_added": self.bytes_added,
            "bytes_copied": self.bytes_copied,
            "descriptor": self.descriptor.to_json(),
        }


def publish(
    path: str | os.PathLike[str],
    files: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]],
    draft: Mapping[str, Any],
    tags: Iterable[str] = (),
    *,
    name: str = "",
    progress: Callable[[int], None] | None = None,
) -> Published:
    """Commit an artifact; publishing the same again adds nothing and gives the same digest.

    Args:
        path: of the store; made if there is none.
        files: folder of the capture, or path in the capsule -> file. Files become read-only
            and share their bytes with the store. A file that is gone is fine if the store has
            it already (a publish that was cut is simply repeated).
        draft: the descriptor; see `coldsnap.artifact.descriptor.complete`.
        tags: names that move to this artifact.
        name: what its generations have in common, for retention; default the first tag, else
            the model's id.
        progress: gets the bytes put in so far.

    Raises:
        ColdSnapError: ``artifact.invalid``, ``store.tag-invalid``, ``store.source-missing``,
            ``store.source-differs``, ``store.read-only``, ``file.disk-full``, ``store.busy``.
    """
    descriptor = complete(draft)
    names = check_tags(tags)
    store = create_store(path)
    with store.shared():
        try:
            added, copied = put_files(store, files, descriptor, progress)
            config = put_document(store, descriptor.to_json(), media.CONFIG_TYPE)
            manifest = put_document(store, _manifest(descriptor, config), media.MANIFEST_TYPE)
            entry = _entry(descriptor, manifest, name or (names[0] if names else ""))
            with store.index_locked():
                store.write_index(insert(store.read_index(), entry, names))
        except OSError as error:
            raise _refused(store, file_error(error, store.root)) from error
        except ColdSnapError as error:
            raise _refused(store, error) from error.__cause__
    total = sum(item.bytes for item in descriptor.objects())
    return Published(manifest["digest"], descriptor, total, added, copied)


def tag(store: Store, manifest: str | None, tags: Iterable[str]) -> None:
    """Move `tags` to an artifact; with None nothing has them any longer.

    Raises:
        ColdSnapError: ``store.no-such-artifact``, ``store.tag-invalid``, ``store.read-only``.
    """
    names = check_tags(tags)
    if manifest is None and not any(set(names) & set(e.tags) for e in entries(store.read_index())):
        return  # nothing to take away, not even from a store that cannot be written
    try:
        with store.shared(), store.index_locked():
            store.write_index(retag(store.read_index(), manifest, names))
    except ColdSnapError as error:
        raise _refused(store, error) from error.__cause__


def put_document(store: Store, value: Any, media_type: str) -> dict[str, Any]:
    """Store a JSON document; returns its OCI content descriptor."""
    data, digest = media.canonical_blob(value)
    target = store.blob(digest)
    if not target.exists():
        temporary = store.staging / secrets.token_hex(8)
        try:
            write_new(temporary, data, 0o400)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        fsync_dir(target.parent)
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


def _manifest(descriptor: Descriptor, config: dict[str, Any]) -> dict[str, Any]:
    return {
        "schemaVersion": 2,
        "mediaType": media.MANIFEST_TYPE,
        "artifactType": media.ARTIFACT_TYPE,
        "config": config,
        "layers": [
            {
                "mediaType": media.media_type(item.role),
                "digest": item.sha256,
                "size": item.bytes,
                "annotations": {
                    media.TITLE: item.path,
                    media.ROLE: item.role,
                    media.OWNER: item.owner,
                },
            }
            for item in sorted(descriptor.objects(), key=lambda item: item.path)
        ],
    }


def _entry(descriptor: Descriptor, manifest: dict[str, Any], name: str) -> dict[str, Any]:
    return {
        **manifest,
        "artifactType": media.ARTIFACT_TYPE,
        "annotations": {
            media.NAME: name or descriptor.launch.model.id,
            media.REQUEST: descriptor.request_sha256,
            media.CAPTURE: descriptor.capture_id,
            media.UNITS: ",".join(unit.id for unit in descriptor.launch.units),
            media.CREATED: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        },
    }


def _refused(store: Store, error: ColdSnapError) -> ColdSnapError:
    return read_only(store.root) if error.code == "file.read-only" else error


__all__ = ["Published", "publish", "put_document", "tag"]
