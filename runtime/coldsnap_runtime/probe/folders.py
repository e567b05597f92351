"""The folder that ColdSnap keeps on the host."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from coldsnap_runtime.probe.feature import (
    FAILED,
    UNQUALIFIED,
    UNSUPPORTED,
    Options,
    lacking,
    passed,
    read,
)

if TYPE_CHECKING:
    from coldsnap_runtime.probe.feature import Feature


def probe_state_dir(options: Options) -> Feature:
    folder = _existing(options.state_dir)
    space = os.statvfs(folder)
    evidence = {
        "path": options.state_dir,
        "filesystem": _filesystem(folder),
        "free": space.f_bavail * space.f_frsize,
        "exists": folder == options.state_dir,
    }
    if not os.access(folder, os.W_OK):
        return lacking(FAILED, f"{folder} is not writable", "set state_dir for it", **evidence)
    return passed(**evidence)


def probe_direct_io(options: Options) -> Feature:
    folder = _existing(options.state_dir)
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600)
    except OSError as error:
        known = {errno.EINVAL: UNSUPPORTED, errno.EOPNOTSUPP: UNQUALIFIED}
        reason = f"O_DIRECT cannot be tried in {folder}: {error.strerror}"
        return lacking(known.get(error.errno or 0, FAILED), reason, "reads go through the cache")
    os.close(descriptor)
    return passed(filesystem=_filesystem(folder))


def _existing(path: str) -> str:
    while not os.path.isdir(path):
        path = os.path.dirname(path) or "/"
    return path


def _filesystem(path: str) -> str:
    """The type of the file system at `path`."""
    best, kind = "", ""
    for line in read("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        point = left.split()[4].replace("\\040", " ")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind
