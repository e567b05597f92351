"""What the kernel holds of a file in its page cache."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

_LOWEST_BIT = bytes(byte & 1 for byte in range(256))


def cached_share(path: Path) -> float:
    """Part of the file's pages in the page cache, 0 to 1; what nobody may know counts as 1.

    Raises:
        OSError: the file cannot be opened, or mincore is refused.
    """
    size = path.stat().st_size
    if size == 0:
        return 0.0
    calls = ctypes.CDLL(None, use_errno=True)
    calls.mmap.restype = ctypes.c_void_p
    calls.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    calls.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    calls.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    descriptor = os.open(path, os.O_RDONLY)
    try:
        address = calls.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    finally:
        os.close(descriptor)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "mmap", str(path))
    try:
        pages = -(-size // mmap.PAGESIZE)
        found = ctypes.create_string_buffer(pages)
        if calls.mincore(address, size, found):
            raise OSError(ctypes.get_errno(), "mincore", str(path))
        # The lowest bit of each byte; the others are for later kernels.
        return found.raw.translate(_LOWEST_BIT).count(1, 0, pages) / pages
    finally:
        calls.munmap(address, size)
