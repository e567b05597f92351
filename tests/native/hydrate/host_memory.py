"""Host memory that extents are read into."""

from __future__ import annotations

import ctypes

from coldsnap_runtime.hydrate import Region

CHUNK = 16 << 10
LENGTHS = {"a": 100_000, "b": 0, "c": 1, "d": 4096, "e": CHUNK, "f": 300_001}


class Memory:
    """Host memory for the extents of a pack; `shift` bytes beside any alignment."""

    def __init__(self, lengths: dict[str, int], shift: int = 0) -> None:
        self._buffers = {
            name: ctypes.create_string_buffer(length + 8192) for name, length in lengths.items()
        }
        self.lengths = lengths
        self.addresses = {
            name: -(-ctypes.addressof(buffer) // 4096) * 4096 + shift
            for name, buffer in self._buffers.items()
        }

    def read(self, name: str) -> bytes:
        return ctypes.string_at(self.addresses[name], self.lengths[name])

    def around(self, name: str) -> bytes:
        """The bytes right behind the extent, which nobody may write."""
        return ctypes.string_at(self.addresses[name] + self.lengths[name], 100)


def places(region: Region) -> dict[str, int]:
    """Odd addresses, one after the other with a gap."""
    addresses, at = {}, region.address + 1
    for name, length in LENGTHS.items():
        addresses[name] = at
        at += length + 3
    return addresses
