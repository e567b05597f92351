"""Files outside the unit that its processes have mapped or open.

They must be the same ones at a restore, to the byte. CRIU looks at their size (and at some build
ids) only.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import read_regular, sha256_stream, write_atomic
from coldsnap_runtime.unit_processes import FileUse

_MAX_CACHE = 64 << 20
_REMEDY = (
    "put the captured file back (the same package or image version), or capture again on this host"
)


@dataclass(frozen=True)
class MappedFile:
    """`path` is that inside the unit. A file that is only written has no digest: it may grow."""

    path: str
    bytes: int
    mtime_ns: int
    sha256: str
    device: int
    inode: int
    ctime_ns: int
    flags: int = 0
    """Open flags, for files that are only written."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> MappedFile:
        """Raises TypeError for what is not such a record."""
        return cls(**value)

    @property
    def is_output(self) -> bool:
        return not self.sha256


def collect(
    uses: Iterable[FileUse], is_private: Callable[[str], bool]
) -> tuple[list[MappedFile], list[str]]:
    """The files outside, not hashed yet, and the paths of those that were deleted.

    Sorted by path. What was deleted only CRIU can carry.
    """
    found: dict[str, MappedFile] = {}
    deleted: set[str] = set()
    readers: set[str] = set()
    for use in uses:
        if is_private(use.path):
            continue
        if use.is_deleted:
            deleted.add(use.path)
            continue
        found.setdefault(use.path, _record(use))
        if use.is_read:
            readers.add(use.path)
    files = [replace(file, sha256="-") if file.path in readers else file for file in found.values()]
    return sorted(files, key=lambda file: file.path), sorted(deleted)


def digested(
    files: Iterable[MappedFile], locate: Callable[[str], Path], known: DigestCache
) -> list[MappedFile]:
    """The files with their digests.

    Raises:
        ColdSnapError: ``checkpoint.file-changed`` if one is no longer what was dumped.
    """
    result = []
    for file in files:
        if file.is_output:
            result.append(file)
            continue
        path = locate(file.path)
        if not _is_recorded(file, path):
            raise ColdSnapError(
                "checkpoint.file-changed",
                f"{file.path} was changed or replaced while the unit was captured",
                remedy="let package installations end, then capture again",
            )
        result.append(replace(file, sha256=known.digest(path)))
    return result


def check(
    files: Iterable[MappedFile],
    locate: Callable[[str], Path],
    known: DigestCache,
    *,
    is_full: bool = False,
) -> list[MappedFile]:
    """Compare the files of this host with the captured ones, all before anything is started.

    Returns the outputs (only written) whose size is not the captured one: they are attached
    anew instead of reopened by CRIU.

    Raises:
        ColdSnapError: ``restore.library-changed`` naming the first and counting all.
    """
    differing: list[tuple[str, tuple[str, ...]]] = []
    outputs: list[MappedFile] = []
    for file in files:
        path = locate(file.path)
        if file.is_output:
            if _size(path) != file.bytes:
                outputs.append(file)
            continue
        if not is_full and _is_recorded(file, path):
            continue
        difference = _difference(file, path, known, is_full=is_full)
        if difference:
            differing.append(difference)
    if differing:
        raise _changed(differing)
    return outputs


class DigestCache:
    """Digests of big files that were hashed before, bound to what stat says of them.

    ctime cannot be set by a program, so a file that was written since is always hashed again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, list[Any]] = {}
        self._is_changed = False
        try:
            value = json.loads(read_regular(path, _MAX_CACHE))
            self._known = value if isinstance(value, dict) else {}
        except (ColdSnapError, ValueError):
            pass  # a missing or damaged cache only costs time

    def digest(self, path: Path, *, is_full: bool = False) -> str:
        """``sha256:<hex>`` of a regular file.

        Raises:
            OSError: as the system says; IsADirectoryError for anything but a regular file.
        """
        # O_NONBLOCK: a FIFO put in a file's place must not be waited for.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as f:
            status = os.fstat(f.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, "not a regular file")
            key, identity = f"{status.st_dev}:{status.st_ino}", _identity(status)
            known = self._known.get(key)
            if not is_full and isinstance(known, list) and known[:-1] == identity:
                return str(known[-1])
            value = sha256_stream(f)
            if _identity(os.fstat(f.fileno())) == identity:
                self._known[key] = [*identity, value]
                self._is_changed = True
        return value

    def save(self) -> None:
        """Keep what was learned; a failure to do so is no failure of the verb."""
        if not self._is_changed:
            return
        try:
            write_atomic(self._path, json.dumps(self._known, sort_keys=True).encode())
        except ColdSnapError:
            return
        self._is_changed = False


def _record(use: FileUse) -> MappedFile:
    status = use.status
    return MappedFile(
        path=use.path,
        bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
        sha256="",
        device=status.st_dev,
        inode=status.st_ino,
        ctime_ns=status.st_ctime_ns,
        flags=use.flags,
    )


def _identity(status: os.stat_result) -> list[int]:
    return [
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    ]


def _is_recorded(file: MappedFile, path: Path) -> bool:
    try:
        found = _identity(path.stat())
    except OSError:
        return False
    return found == [file.device, file.inode, file.bytes, file.mtime_ns, file.ctime_ns]


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _difference(
    file: MappedFile, path: Path, known: DigestCache, *, is_full: bool
) -> tuple[str, tuple[str, ...]] | None:
    """The path and how it differs, or None if it is the captured file."""
    captured = f"captured {file.sha256} ({file.bytes:,} bytes)"
    try:
        size = path.stat().st_size
        if size == file.bytes:
            digest = known.digest(path, is_full=is_full)
            if digest == file.sha256:
                return None
            found = f"{digest} (same size)"
        else:
            found = f"{size:,} bytes"
    except OSError as error:
        found = "nothing" if error.errno == errno.ENOENT else str(error.strerror)
    return file.path, (f"{captured}, found {found}",)


def _changed(differing: list[tuple[str, tuple[str, ...]]]) -> ColdSnapError:
    path, details = differing[0]
    others = [f"also: {other}: {lines[0]}" for other, lines in differing[1:10]]
    if len(differing) > 10:  # noqa: PLR2004
        others.append(f"and {len(differing) - 10} more")
    return ColdSnapError(
        "restore.library-changed",
        f"{path} is not the file that was captured",
        details=(*details, *others, "nothing was started"),
        remedy=_REMEDY,
    )
