"""Putting a capture into a store: hard links where possible, digests checked, one atomic index.

Order: every file durable under its digest, then the descriptor, then the manifest, then the
index. A crash before the last leaves unreferenced blobs; the next publish finds them, the next
collection removes them if there is none.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact import measure
from coldsnap.artifact.captured import EXPORTED
from coldsnap.artifact.descriptor import Descriptor, complete
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import file_error, fsync_dir, open_regular, sha256_file, write_new
from coldsnap.artifact.oci import media
from coldsnap.artifact.oci.entries import check_tags, insert, retag
from coldsnap.artifact.oci.layout import Store, create_store, read_only
from coldsnap.artifact.validation import remember, validate

if TYPE_CHECKING:
    from coldsnap.artifact.weights import FileObject

_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP)


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
            added, copied = _put_files(store, files, descriptor, progress)
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


def _put_files(
    store: Store,
    files: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]],
    descriptor: Descriptor,
    progress: Callable[[int], None] | None,
) -> tuple[int, int]:
    """Put every file in; returns bytes added, and of those the copied ones."""
    evidence: Mapping[str, measure.Measured] = {}
    if not isinstance(files, Mapping):
        evidence = measure.read_evidence(files)
    done = added = copied = 0
    for item in descriptor.objects():
        source = _source(files, item)
        if _has(store, item):
            outcome = "there"
        else:
            outcome = _put_file(store, source, item, evidence.get(item.path))
        added += 0 if outcome == "there" else item.bytes
        copied += item.bytes if outcome == "copied" else 0
        done += item.bytes
        if progress is not None:
            progress(done)
    fsync_dir(store.root / "blobs" / "sha256")
    return added, copied


def _source(
    files: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]], item: FileObject
) -> Path:
    if isinstance(files, Mapping):
        return Path(files[item.path]) if item.path in files else Path("/nonexistent")
    root = Path(files).resolve()
    source = root / item.path
    if item.role in EXPORTED and not source.exists():
        source = root / EXPORTED[item.role]
    # A link inside the capture must not lead out of it.
    if source.parent.resolve() != source.parent:
        message = f"{item.path} is behind a symbolic link in the capture"
        raise ColdSnapError("store.source-differs", message)
    return source


def _has(store: Store, item: FileObject) -> bool:
    """Whether the blob is there and sound; a damaged one is replaced by the new file."""
    blob = store.blob(item.sha256)
    if not blob.exists():
        return False
    try:
        validate(blob, sha256=item.sha256, size=item.bytes, record=store.record(item.sha256))
    except ColdSnapError:
        return False
    return True


def _put_file(
    store: Store, source: Path, item: FileObject, measured: measure.Measured | None
) -> str:
    try:
        file = open_regular(source)
    except ColdSnapError as error:
        if error.code == "file.missing":
            message = f"{item.path} is missing from the capture"
            raise ColdSnapError("store.source-missing", message) from None
        raise
    temporary = store.staging / secrets.token_hex(8)
    with file:
        stat = os.fstat(file.fileno())
        try:
            linked = _link(source, temporary)
            if linked and os.lstat(temporary).st_ino != stat.st_ino:
                raise ColdSnapError("store.source-differs", f"{item.path} was replaced meanwhile")
            if not linked:
                _copy(file.fileno(), temporary, stat.st_size)
            checked = linked and measure.is_measured(measured, stat, item.sha256)
            if not checked:
                _check(temporary, item)
            _seal(temporary)
            target = store.blob(item.sha256)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    remember(store.record(item.sha256), target, item.sha256)
    return "linked" if linked else "copied"


def _link(source: Path, target: Path) -> bool:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NO_LINK:
            return False
        raise
    return True


def _copy(source: int, target: Path, size: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(target, flags, 0o400), "wb") as file:
        at = 0
        while at < size:
            data = os.pread(source, min(1 << 20, size - at), at)
            if not data:
                break  # the digest check that follows says it better
            file.write(data)
            at += len(data)


def _check(path: Path, item: FileObject) -> None:
    size, found = path.stat().st_size, sha256_file(path)
    if (size, found) != (item.bytes, item.sha256):
        raise ColdSnapError(
            "store.source-differs",
            f"{item.path} is not what was captured",
            details=(
                f"expected {item.sha256} ({item.bytes} bytes)",
                f"found {found} ({size} bytes)",
            ),
        )


def _seal(path: Path) -> None:
    """Read-only, and on disk before its name is."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fchmod(descriptor, 0o400)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
