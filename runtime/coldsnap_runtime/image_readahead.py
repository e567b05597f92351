"""Have the kernel read an image into the page cache while the unit's namespaces are made."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_SMALLEST = 1 << 20
"""Bytes of a file that is worth it."""
_BLOCK = 32 << 20
_SHARE = 0.5
"""Of the memory that is free: more would drive out what was read first."""


def read_ahead(folder: Path) -> None:
    """Begin with the big files below `folder`, and return at once; a failure only costs time."""
    threading.Thread(target=_read, args=(folder,), name="readahead", daemon=True).start()


def _read(folder: Path) -> None:
    left = int(_available() * _SHARE)
    for path in _big_files(folder):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            size = min(os.fstat(descriptor).st_size, left)
            for offset in range(0, size, _BLOCK):
                length = min(_BLOCK, size - offset)
                os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_WILLNEED)
        except OSError:
            return
        finally:
            os.close(descriptor)
        left -= size
        if left <= 0:
            return


def _big_files(folder: Path) -> list[str]:
    found: list[tuple[int, str]] = []
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            try:
                size = os.lstat(path).st_size
            except OSError:
                continue
            if size >= _SMALLEST:
                found.append((-size, path))
    return [path for _, path in sorted(found)]


def _available() -> int:
    """Bytes that could be used without swapping; 0 if the kernel does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) << 10
    except (OSError, ValueError):
        return 0
    return 0
