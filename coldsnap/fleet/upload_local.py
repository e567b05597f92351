"""Upload to this machine: a copy in the kernel, or a reflink where the file system has them."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from coldsnap.artifact.files import fsync_dir, sha256_file
from coldsnap.fleet.upload import Upload

_FICLONE = 0x40049409
_CHUNK = 16 << 20
_NO_KERNEL_COPY = (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


def put(task: Upload) -> bool:
    """As `coldsnap.fleet.upload.put`."""
    final = Path(task.remote)
    try:
        if _is_there(task, final):
            final.chmod(task.mode)
            return False
        final.parent.mkdir(parents=True, exist_ok=True)
        _copy_and_settle(task, final)
    except OSError as error:
        raise task.failed(error.strerror or str(error)) from error
    return True


def _is_there(task: Upload, final: Path) -> bool:
    if final.is_symlink() or not final.is_file() or final.stat().st_size != task.size:
        return False
    return sha256_file(final, lambda _done: task.check()) == f"sha256:{task.sha256}"


def _copy_and_settle(task: Upload, final: Path) -> None:
    temporary = Path(task.temporary)
    try:
        with task.local.open("rb") as source, temporary.open("xb") as target:
            os.fchmod(target.fileno(), task.mode)
            if not _reflinked(source.fileno(), target.fileno()):
                _copy(task, source.fileno(), target.fileno())
            os.fsync(target.fileno())
        task.progress(task.size)
        found = sha256_file(temporary, lambda _done: task.check()).removeprefix("sha256:")
        if found != task.sha256:
            raise task.corrupted(found)
        temporary.replace(final)
        fsync_dir(final.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _reflinked(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


def _copy(task: Upload, source: int, target: int) -> None:
    done = 0
    in_kernel = True
    while True:
        task.progress(done)
        try:
            count = (
                os.copy_file_range(source, target, _CHUNK)
                if in_kernel
                else os.sendfile(target, source, None, _CHUNK)
            )
        except OSError as error:
            if not in_kernel or done or error.errno not in _NO_KERNEL_COPY:
                raise
            in_kernel = False
            continue
        if count == 0:
            return
        done += count
