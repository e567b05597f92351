"""Files that survive a crash and files that are not trusted.

Writing: temporary name in the same folder, fsync, rename, fsync of the folder. Reading: regular
files only, symbolic links never followed in the last component, FIFOs never waited for.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

from coldsnap.artifact.errors import ColdSnapError

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK = 1 << 20
"""Bytes per read while hashing."""

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


Sync = Literal["name", "data", "none"]
"""What of a written file survives a power cut: new content for sure; the old or the new, whole;
nothing for sure. The less, the faster: two flushes of the disk, one, none."""


def write_atomic(
    path: str | os.PathLike[str], data: bytes, mode: int = 0o600, *, sync: Sync = "name"
) -> None:
    """Write `data` so that `path` holds either its old content or all of the new.

    Args:
        path: the file.
        data: its new content.
        mode: its permissions.
        sync: less than ``name`` only for what means nothing after a boot. Whoever reads while
            this machine runs never sees half a file.

    Raises:
        ColdSnapError: ``file.disk-full``, ``file.read-only``, ``file.unwritable``.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.urandom(8).hex()}.tmp")
    try:
        try:
            write_new(temporary, data, mode, sync=sync != "none")
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        if sync == "name":
            fsync_dir(target.parent)
    except OSError as error:
        raise file_error(error, target) from error


def write_named(path: str | os.PathLike[str], data: bytes, mode: int = 0o644) -> None:
    """Write a file that a person named: what it is decides how.

    A regular file, or none, is replaced as a whole (`write_atomic`), one behind a link where it
    is. A device or pipe (/dev/null, /dev/stdout, ``>(command)``) is written to and stays.

    Raises:
        ColdSnapError: as `write_atomic`.
    """
    target = Path(path)
    if not target.name:
        raise ColdSnapError("file.unwritable", f"{target} is a folder and cannot be written to")
    try:
        is_special = not stat.S_ISREG(target.stat().st_mode) and not target.is_dir()
    except OSError:
        is_special = False
    if not is_special:
        write_atomic(behind_link(target), data, mode)
        return
    try:
        with target.open("wb") as file:
            file.write(data)
    except OSError as error:
        raise file_error(error, target) from error


def behind_link(target: Path) -> Path:
    """The file itself where `target` is a symbolic link, else `target`.

    Raises:
        ColdSnapError: ``file.unwritable``: a loop of links.
    """
    if not target.is_symlink():
        return target
    try:
        return target.resolve()
    except (OSError, RuntimeError) as error:  # Python before 3.13 tells a loop so
        message = f"{target} cannot be written: it is a link that leads nowhere"
        raise ColdSnapError("file.unwritable", message) from error


def same_file(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Whether both names lead to one file that is there."""
    try:
        return Path(one).samefile(other)
    except (OSError, ValueError):
        return False


def write_new(
    path: str | os.PathLike[str], data: bytes, mode: int = 0o600, *, sync: bool = True
) -> None:
    """Create a file that must not exist, with exactly `mode`, and fsync it unless told not to.

    Raises:
        OSError: as the system says; FileExistsError if it is there.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(path, flags, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        if sync:
            os.fsync(descriptor)


def fsync_dir(path: str | os.PathLike[str]) -> None:
    """Make names created, renamed or removed in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading: no symlink, FIFO or device.

    Raises:
        ColdSnapError: ``file.missing``, ``file.not-regular``, ``file.unreadable``.
    """
    # O_NONBLOCK: the open of a FIFO without a writer must return, not wait.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError as error:
        raise ColdSnapError("file.missing", f"{os.fspath(path)} is missing") from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _not_regular(path) from error
        message = f"{os.fspath(path)} cannot be read: {error.strerror}"
        raise ColdSnapError("file.unreadable", message) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_regular(path)
    return os.fdopen(descriptor, "rb")


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Whether it is one; a name that no file can have (too long, a loop) is none."""
    try:
        return stat.S_ISDIR(Path(path).stat().st_mode)
    except (OSError, ValueError):
        return False


def read_regular(path: str | os.PathLike[str], limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes.

    Raises:
        ColdSnapError: as `open_regular`; ``file.too-large``.
    """
    with open_regular(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        message = f"{os.fspath(path)} is larger than the {limit} bytes allowed for it"
        raise ColdSnapError("file.too-large", message)
    return data


def sha256_file(path: str | os.PathLike[str], progress: Callable[[int], None] | None = None) -> str:
    """``sha256:<hex>`` of a regular file; `progress` gets the bytes hashed so far.

    Raises:
        ColdSnapError: as `open_regular`.
    """
    with open_regular(path) as file:
        return sha256_stream(file, progress)


def sha256_stream(
    file: BinaryIO, progress: Callable[[int], None] | None = None, limit: int | None = None
) -> str:
    """``sha256:<hex>`` of what is left to read of `file`, at most `limit` bytes of it."""
    hasher = hashlib.sha256()
    block = memoryview(bytearray(BLOCK))
    done = 0
    while limit is None or done < limit:
        part = block if limit is None else block[: limit - done]
        count = file.readinto(part)  # type: ignore[attr-defined]
        if not count:
            break
        hasher.update(part[:count])
        done += count
        if progress is not None:
            progress(done)
    return "sha256:" + hasher.hexdigest()


def file_error(error: OSError, path: str | os.PathLike[str]) -> ColdSnapError:
    """The failed write of `path` in our words."""
    name = os.fspath(path)
    if error.errno in _DISK_FULL:
        return ColdSnapError(
            "file.disk-full",
            f"no space left while writing {name}",
            remedy="free space on that file system, or choose another folder",
        )
    if error.errno in _READ_ONLY:
        return ColdSnapError("file.read-only", f"{name} cannot be written: {error.strerror}")
    return ColdSnapError("file.unwritable", f"{name} cannot be written: {error}")


def _not_regular(path: str | os.PathLike[str]) -> ColdSnapError:
    return ColdSnapError("file.not-regular", f"{os.fspath(path)} is not a regular file")
