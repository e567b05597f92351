"""Memory at fixed addresses whose pages can be given back and whose addresses stay.

Weights and keys/values live in such regions and nowhere else, so that a process image taken
after `Region.drop` holds none of their bytes, while every NumPy array over them stays valid.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from coldsnap.artifact.errors import ColdSnapError

if TYPE_CHECKING:
    import numpy.typing as npt

PAGE = 4096
_HUGE_PAGE = 2 << 20
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
_MAP_FIXED_NOREPLACE = 0x100000
_MADV_HUGEPAGE = 14
_ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
# Far from where Linux puts programs (0x55..), libraries and anonymous memory (0x7f..).
WEIGHTS_ADDRESS = 0x1000_0000_0000
KV_ADDRESS = 0x1800_0000_0000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
]  # fmt: skip
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.malloc_trim.argtypes = [ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


class Region:
    """Zeroed private memory, `size` bytes from `address` on, rounded up to a huge page."""

    def __init__(self, name: str, address: int, size: int, *, huge: bool) -> None:
        """With `huge`, the kernel is asked for 2 MiB pages: fewer faults for what is filled whole.

        Raises:
            ColdSnapError: ``engine.address-taken`` when something is mapped there.
        """
        self.name = name
        self._huge = huge
        self.address = address
        self.size = -(-max(size, 1) // _HUGE_PAGE) * _HUGE_PAGE
        try:
            self._map(_ANONYMOUS | _MAP_FIXED_NOREPLACE)
        except OSError as error:
            raise ColdSnapError(
                "engine.address-taken",
                f"{size} bytes for {name} cannot be mapped at {address:#x}: {error.strerror}",
            ) from error

    def array(self, offset: int, shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
        """An array over the region's bytes from `offset` on; it owns nothing."""
        count = int(np.prod(shape, dtype=np.int64))
        length = count * np.dtype(dtype).itemsize
        if offset < 0 or offset + length > self.size:
            raise ValueError(f"{length} bytes at {offset} are outside region {self.name}")
        memory = (ctypes.c_char * max(length, 1)).from_address(self.address + offset)
        return np.frombuffer(memory, dtype, count).reshape(shape)

    def drop(self) -> None:
        """Give every page back; the region reads as zeros afterwards, at the same address."""
        self._map(_ANONYMOUS | _MAP_FIXED)

    def expect_all(self) -> None:
        """All of it will be written: pages of 2 MiB, where the region was made for them.

        Filled by faults of 4 KiB, a region takes more than twice the time.
        """
        if self._huge:
            # Advice: a kernel without huge pages refuses it and nothing is lost.
            _libc.madvise(self.address, self.size, _MADV_HUGEPAGE)

    def map_file(self, descriptor: int, length: int) -> None:
        """Show the first `length` bytes of a file from the region's start on, copy on write.

        Bytes come from the page cache when they are touched; nothing is read here.
        """
        self._map(mmap.MAP_PRIVATE | _MAP_FIXED, descriptor, length)

    def resident_bytes(self) -> int:
        """Bytes of the region that occupy memory now."""
        total, inside = 0, False
        with open("/proc/self/smaps", encoding="ascii", errors="replace") as file:
            for line in file:
                head, _, rest = line.partition(" ")
                if "-" in head and not head.endswith(":"):
                    start = int(head.split("-")[0], 16)
                    inside = self.address <= start < self.address + self.size
                elif inside and head == "Rss:":
                    total += int(rest.split()[0]) * 1024
        return total

    def _map(self, flags: int, descriptor: int = -1, length: int | None = None) -> None:
        size = self.size if length is None else length
        found = _libc.mmap(self.address, size, _READ_WRITE, flags, descriptor, 0)
        if found != self.address:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        if descriptor < 0:
            self.expect_all()


def trim_heap() -> None:
    """Give free heap pages back to the system."""
    _libc.malloc_trim(0)
