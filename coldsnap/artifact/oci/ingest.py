"""Taking the files of a capture into a store: linked where possible, every digest checked."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from coldsnap.artifact import measure
from coldsnap.artifact.captured import EXPORTED
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import fsync_dir, open_regular, sha256_file
from coldsnap.artifact.validation import remember, validate

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldsnap.artifact.descriptor import Descriptor
    from coldsnap.artifact.oci.layout import Store
    from coldsnap.artifact.weights import FileObject

_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP)


def put_files(
    store: Store,
    files: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]],
    descriptor: Descriptor,
    progress: Callable[[int], None] | None,
) -> tuple[int, int]:
    """Put every file in; returns bytes added, and of those the copied ones.

    Raises:
        ColdSnapError: ``store.source-missing``, ``store.source-differs``, ``file.*``.
        OSError: as the system says.
    """
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
