"""Device memory whose address stays while its physical memory goes and comes back."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

from coldsnap_runtime.hydrate.structures import RegionState

if TYPE_CHECKING:
    from types import TracebackType

    from coldsnap_runtime.hydrate.library import Library


class Region:
    """A range of device addresses with physical memory behind it, or without."""

    def __init__(
        self,
        library: Library,
        size: int,
        *,
        address: int = 0,
        device: int = 0,
        cuda_library: str | None = None,
    ) -> None:
        """Reserve `size` bytes and map memory; at `address`, if that is not 0.

        Raises:
            ColdSnapError: ``hydrate.no-device``; ``hydrate.device`` where the address is taken or
                memory is short; nothing is left then.
        """
        self._library = library
        self._handle = ctypes.c_void_p()
        name = os.fsencode(cuda_library) if cuda_library else None
        library.call("region_make", name, device, size, address, ctypes.byref(self._handle))

    def __enter__(self) -> Region:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.free()

    @property
    def address(self) -> int:
        return int(self._state().address)

    @property
    def size(self) -> int:
        """Rounded up to the device's granularity."""
        return int(self._state().bytes)

    @property
    def epoch(self) -> int:
        """Grows each time memory is mapped: what was written in an older epoch is gone."""
        return int(self._state().epoch)

    @property
    def is_mapped(self) -> bool:
        return bool(self._state().mapped)

    def release(self) -> None:
        """Give the physical memory back and keep the address."""
        self._library.call("region_release", self._handle)

    def map(self) -> None:
        """Put fresh physical memory behind the same address; what it holds is undefined."""
        self._library.call("region_map", self._handle)

    def zero(self) -> None:
        self._library.call("region_zero", self._handle)

    def get(self, offset: int, size: int) -> bytes:
        """Bytes of the device; for small things and tests."""
        buffer = ctypes.create_string_buffer(size)
        self._library.call("region_get", self._handle, offset, buffer, size)
        return buffer.raw

    def put(self, offset: int, data: bytes) -> None:
        self._library.call("region_put", self._handle, offset, data, len(data))

    def free(self) -> None:
        """Give everything back. Freed already: nothing to do."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle:
            self._library.call("region_free", handle)

    def _state(self) -> RegionState:
        state = RegionState(struct_bytes=ctypes.sizeof(RegionState))
        self._library.call("region_state_of", self._handle, ctypes.byref(state))
        return state


def graph_memory(
    library: Library, *, device: int = 0, cuda_library: str | None = None
) -> tuple[int, int]:
    """Bytes that CUDA graphs of a device use, and have reserved.

    Raises:
        ColdSnapError: ``hydrate.no-device``, ``hydrate.device``.
    """
    used, reserved = ctypes.c_uint64(), ctypes.c_uint64()
    name = os.fsencode(cuda_library) if cuda_library else None
    library.call("graph_memory", name, device, ctypes.byref(used), ctypes.byref(reserved))
    return used.value, reserved.value
