"""The file and the memory that a bench moves bytes between."""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass
from pathlib import Path

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import file_error
from coldsnap_runtime.host_room import available_memory
from coldsnap_runtime.hydrate.library import Library
from coldsnap_runtime.hydrate.session import Transfer
from coldsnap_runtime.hydrate.structures import Algorithm

CHUNK = 4 << 20
BLOCK = 64 << 20
"""Random bytes that the file repeats: larger than the caches of a processor."""
EXTENT = 256 << 20


class HostMemory:
    """Touched, page-aligned memory.

    Raises:
        ColdSnapError: ``hydrate.no-memory``, before the kernel has to end somebody for it.
    """

    def __init__(self, size: int) -> None:
        room = available_memory()
        if room is not None and room < size:
            raise ColdSnapError(
                "hydrate.no-memory",
                f"{size} bytes of memory are needed, {room} are available",
                remedy="free memory, or take something smaller",
            )
        self.size = size
        try:
            self._map = mmap.mmap(-1, size + 4096)
        except OSError as error:  # a limit of this process
            raise ColdSnapError("hydrate.no-memory", f"{size} bytes: {error.strerror}") from error
        self.view = memoryview(self._map)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        ctypes.memset(self.address, 1, size)


@dataclass(frozen=True)
class CachedFile:
    """A file that is in the page cache or not, as a measurement wants it."""

    path: Path

    def warm(self) -> None:
        """Have all of it in the page cache."""
        block = bytearray(16 << 20)
        with self.path.open("rb", buffering=0) as file:
            while file.readinto(block):
                pass

    def drop(self) -> None:
        """Have none of it in the page cache."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


@dataclass(frozen=True)
class BenchFile(CachedFile):
    size: int
    digests: dict[Algorithm, bytes]

    def transfer(self, address: int, algorithm: Algorithm) -> Transfer:
        """All of the file to memory from `address` on."""
        extents = [
            (at, min(EXTENT, self.size - at), address + at) for at in range(0, self.size, EXTENT)
        ]
        digests = self.digests.get(algorithm)
        return Transfer(str(self.path), self.size, extents, CHUNK, algorithm, digests)

    def write_transfer(
        self, path: Path, address: int, size: int, *, identity: bool = True, is_durable: bool = True
    ) -> Transfer:
        """`size` bytes from `address` on to a new file."""
        extents = [(at, min(EXTENT, size - at), address + at) for at in range(0, size, EXTENT)]
        chunks = -(-size // CHUNK)
        return Transfer(
            str(path), size, extents, CHUNK, Algorithm.BLAKE3, digest_count=chunks,
            identity=identity, is_durable=is_durable,
        )  # fmt: skip

    def remove(self) -> None:
        """Leave nothing of it."""
        self.path.unlink(missing_ok=True)
        _block_of(self.path.parent).unlink(missing_ok=True)


def check_room(folder: Path, wanted: int) -> None:
    """Whether the folder takes so many bytes more.

    Raises:
        ColdSnapError: ``bench.no-room``, ``file.*``.
    """
    try:
        free = os.statvfs(folder)
    except OSError as error:
        raise file_error(error, folder) from error
    if free.f_bavail * free.f_frsize < wanted:
        raise ColdSnapError(
            "bench.no-room", f"{folder} has no room for {wanted} bytes", remedy="give --dir DIR"
        )


def make_file(library: Library, folder: Path, size: int) -> BenchFile:
    """Write the file, `size` rounded up to a chunk; one that is there and fits is taken.

    Raises:
        ColdSnapError: ``bench.no-room``, ``file.*``.
    """
    size = -(-size // CHUNK) * CHUNK
    path, seed = folder / "coldsnap-bench.bin", _block_of(folder)
    if seed.is_file() and path.is_file() and path.stat().st_size == size:
        block = seed.read_bytes()
    else:
        check_room(folder, size + BLOCK - (path.stat().st_size if path.is_file() else 0))
        block = os.urandom(BLOCK)
        try:
            seed.write_bytes(block)
            with path.open("wb", buffering=0) as file:
                for at in range(0, size, BLOCK):
                    file.write(block[: min(BLOCK, size - at)])
                os.fsync(file.fileno())
        except OSError as error:
            path.unlink(missing_ok=True)
            seed.unlink(missing_ok=True)
            raise file_error(error, path) from error
    chunks = [block[at : at + CHUNK] for at in range(0, BLOCK, CHUNK)]
    digests = {}
    for algorithm in (Algorithm.SHA256, Algorithm.BLAKE3):
        one = [library.digest(algorithm, chunk) for chunk in chunks]
        count = size // CHUNK
        digests[algorithm] = b"".join((one * (count // len(one) + 1))[:count])
    return BenchFile(path, size, digests)


def _block_of(folder: Path) -> Path:
    return folder / "coldsnap-bench.block"
