"""Files that nobody can change, root included: the attribute that ``chattr +i`` sets.

Processes that were restored by mapping an image read it for as long as they live.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_GET_FLAGS = 0x80086601
_SET_FLAGS = 0x40086602
_IMMUTABLE = 0x10
_UNSUPPORTED = (errno.ENOTTY, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


def set_immutable(path: Path, *, immutable: bool) -> str:
    """Set or clear the attribute of a regular file; why not, if that cannot be, else empty."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        return f"{path.name}: {error.strerror}"
    try:
        flags = array.array("l", [0])
        fcntl.ioctl(descriptor, _GET_FLAGS, flags, True)
        wanted = flags[0] | _IMMUTABLE if immutable else flags[0] & ~_IMMUTABLE
        if wanted != flags[0]:
            fcntl.ioctl(descriptor, _SET_FLAGS, array.array("l", [wanted]))
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return "this file system has no immutable attribute"
        if error.errno == errno.EPERM:
            return "the right to set it is missing (CAP_LINUX_IMMUTABLE)"
        return str(error.strerror)
    finally:
        os.close(descriptor)
    return ""


def is_immutable(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        flags = array.array("l", [0])
        fcntl.ioctl(descriptor, _GET_FLAGS, flags, True)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return bool(flags[0] & _IMMUTABLE)
