"""The folder of a store: blobs, the index, locks, pins, validation records.

::

    oci-layout  index.json  blobs/sha256/<hex>       the OCI image layout
    records/<hex>.json                                stat-bound validation of a blob
    pins/<name>.json                                  a restored unit that uses an artifact
    staging/                                          files on their way in
    lock  index.lock                                  flock

Readers and publishers share ``lock``, a collection takes it alone; ``index.lock`` guards the
read-change-write of index.json. A process that dies gives its locks back; what it left is
unreferenced and goes with the next collection.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact import canonical
from coldsnap.artifact.decode import parse
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import file_error, fsync_dir, read_regular, write_atomic
from coldsnap.artifact.oci.media import INDEX_TYPE, LAYOUT, MAX_INDEX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCK_SECONDS = 600.0
"""How long one waits for another process of the same store."""
_REMEDY = "put index.json back from a copy, or move the store away and capture again"


@dataclass(frozen=True)
class Store:
    """An opened store; cheap, holds nothing open."""

    root: Path

    def blob(self, digest: str) -> Path:
        """Path of a blob; `digest` must be checked already."""
        return self.root / "blobs" / "sha256" / digest.removeprefix("sha256:")

    def record(self, digest: str) -> Path:
        return self.root / "records" / f"{digest.removeprefix('sha256:')}.json"

    @property
    def pins(self) -> Path:
        return self.root / "pins"

    @property
    def staging(self) -> Path:
        return self.root / "staging"

    @contextmanager
    def shared(self) -> Iterator[None]:
        """While held, no blob disappears."""
        with self._locked("lock", fcntl.LOCK_SH):
            yield

    @contextmanager
    def alone(self, patience: float | None = None) -> Iterator[None]:
        """Nobody else reads or publishes; `patience` is LOCK_SECONDS unless given."""
        with self._locked("lock", fcntl.LOCK_EX, patience):
            yield

    @contextmanager
    def index_locked(self) -> Iterator[None]:
        with self._locked("index.lock", fcntl.LOCK_EX):
            yield

    def read_index(self) -> dict[str, Any]:
        """The OCI index, with `manifests` a list of objects.

        Raises:
            ColdSnapError: ``store.index-invalid``.
        """
        path = self.root / "index.json"
        try:
            data = read_regular(path, MAX_INDEX_BYTES)
            index = parse(data, limit=MAX_INDEX_BYTES, what=str(path), code="store.index-invalid")
        except ColdSnapError as error:
            raise ColdSnapError("store.index-invalid", error.message, remedy=_REMEDY) from error
        manifests = index.get("manifests") if isinstance(index, dict) else None
        if not isinstance(manifests, list) or not all(isinstance(m, dict) for m in manifests):
            message = f"{path} is not an OCI index"
            raise ColdSnapError("store.index-invalid", message, remedy=_REMEDY)
        return dict(index)

    def write_index(self, index: dict[str, Any]) -> None:
        """Replace the index; the caller holds `index_locked` or is `alone`."""
        write_atomic(self.root / "index.json", canonical.dumps(index).encode("ascii"))

    @contextmanager
    def _locked(self, name: str, kind: int, patience: float | None = None) -> Iterator[None]:
        descriptor = self._open_lock(name, kind)
        if descriptor is None:
            yield
            return
        try:
            self._wait(descriptor, kind, patience)
            yield
        finally:
            os.close(descriptor)

    def _open_lock(self, name: str, kind: int) -> int | None:
        path = self.root / name
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise file_error(error, path) from error
            if kind == fcntl.LOCK_EX:
                raise read_only(self.root) from error
        try:
            return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None  # a read-only copy without a lock file: nobody here can change it

    def _wait(self, descriptor: int, kind: int, patience: float | None) -> None:
        patience = LOCK_SECONDS if patience is None else patience
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ColdSnapError(
                        "store.busy",
                        f"store {self.root} was in use by another process for {patience:.0f} s",
                        remedy="wait for it, or see who holds it: fuser -v " + str(self.root),
                    ) from None
                time.sleep(0.02)
            else:
                return


def read_only(root: Path) -> ColdSnapError:
    return ColdSnapError(
        "store.read-only",
        f"store {root} cannot be written",
        remedy="mount it writable, or publish to another store",
    )


def open_store(path: str | os.PathLike[str]) -> Store:
    """A store that is there.

    Raises:
        ColdSnapError: ``store.missing``, ``store.not-a-store``.
    """
    root = Path(path)
    if not (root / "oci-layout").exists():
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise ColdSnapError("store.not-a-store", f"{root} is not an OCI image layout")
        raise ColdSnapError("store.missing", f"there is no store at {root}")
    data = read_regular(root / "oci-layout", 1 << 16)
    layout = parse(data, limit=1 << 16, what=f"{root}/oci-layout", code="store.not-a-store")
    if not isinstance(layout, dict) or layout.get("imageLayoutVersion") != "1.0.0":
        message = f"{root} is not an OCI image layout of version 1.0.0"
        raise ColdSnapError("store.not-a-store", message)
    return Store(root)


def create_store(path: str | os.PathLike[str]) -> Store:
    """The store at `path`, made if there is none; the folder is private (0700).

    Raises:
        ColdSnapError: ``store.not-a-store``, ``store.read-only``, ``file.disk-full``.
    """
    root = Path(path)
    if not (root / "oci-layout").exists() and root.is_dir() and _foreign(root):
        raise ColdSnapError("store.not-a-store", f"{root} holds other files and is no store")
    store = Store(root)
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        with store.index_locked():
            for folder in (root / "blobs" / "sha256", root / "records", store.pins, store.staging):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not (root / "index.json").exists():
                store.write_index({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": []})
            # Last: a folder with this file is a whole store.
            if not (root / "oci-layout").exists():
                write_atomic(root / "oci-layout", json.dumps(LAYOUT).encode("ascii"))
            fsync_dir(root)
    except OSError as error:
        raise _refused(file_error(error, root), root) from error
    except ColdSnapError as error:
        raise _refused(error, root) from None
    return open_store(root)


def _refused(error: ColdSnapError, root: Path) -> ColdSnapError:
    return read_only(root) if error.code == "file.read-only" else error


def _foreign(root: Path) -> list[str]:
    """Names that creating a store does not make: then the folder belongs to something else."""
    ours = {"blobs", "records", "pins", "staging", "index.json", "index.lock", "lock"}
    names = [path.name for path in root.iterdir()]
    return [name for name in names if name not in ours and not name.endswith(".tmp")]
