"""The structures of coldsnap_hydrate.h, field by field."""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from enum import IntEnum

ABI = 3
DIGEST_BYTES = 32
MARKS = 8
"""Of `Metrics.mark_ns`: when each eighth of the bytes had gone."""
NOWHERE_IN_PARTICULAR = (1 << 64) - 1
"""Of `Metrics.failed_extent` and `failed_chunk`."""


class Code(IntEnum):
    OK = 0
    INVALID = 1
    MISSING = 2
    NOT_REGULAR = 3
    FILE = 4
    SHORT = 5
    GROWN = 6
    CHANGED = 7
    DIFFERS = 8
    PADDING = 9
    CANCELLED = 10
    DEADLINE = 11
    DISK_FULL = 12
    NO_MEMORY = 13
    NO_DEVICE = 14
    DEVICE = 15
    INTERNAL = 16


class Algorithm(IntEnum):
    UNVERIFIED = 0
    SHA256 = 1
    BLAKE3 = 2


class Place(IntEnum):
    """Where the bytes go to or come from."""

    HOST = 0
    NOWHERE = 1
    CUDA = 2


class Io(IntEnum):
    AUTO = 0
    """From the page cache what is there, the rest by O_DIRECT."""
    BUFFERED = 1
    DIRECT = 2


class Digests(IntEnum):
    """Who makes the BLAKE3 digests of chunks that go to a device."""

    AUTO = 0
    """The device if it takes the library's code, else the processor."""
    PROCESSOR = 1
    DEVICE = 2


class Engine(IntEnum):
    """How bytes come from a file to a device."""

    RING = 0
    CUFILE = 1
    """By libcufile; by the ring where that is not there or fails."""
    MEASURED = 2
    """A part by each, the rest by whichever was faster."""
    HOST = 3
    """Of metrics only: bytes did not go to a device."""


class Waits(IntEnum):
    """How threads wait for a device."""

    AUTO = 0
    """Spinning where there are 8 cores or more."""
    SLEEP = 1
    SPIN = 2


class ExtentEntry(ctypes.Structure):
    _fields_ = (("offset", c_uint64), ("length", c_uint64), ("address", c_uint64))


class Settings(ctypes.Structure):
    _fields_ = (
        ("struct_bytes", c_uint32),
        ("place", c_uint32),
        ("io", c_uint32),
        ("threads", c_uint32),
        ("slots", c_uint32),
        ("device", c_int32),
        ("slot_bytes", c_uint64),
        ("block_bytes", c_uint64),
        ("digests", c_uint32),
        ("engine", c_uint32),
        ("waits", c_uint32),
        ("reserved", c_uint32),
        ("cuda_library", c_char_p),
        ("cufile_library", c_char_p),
    )


ProgressCallback = ctypes.CFUNCTYPE(c_int, c_void_p, c_uint64, c_uint64)


class Request(ctypes.Structure):
    _fields_ = (
        ("struct_bytes", c_uint32),
        ("algorithm", c_uint32),
        ("path", c_char_p),
        ("file_bytes", c_uint64),
        ("extents", POINTER(ExtentEntry)),
        ("extent_count", c_uint64),
        ("chunk_bytes", c_uint64),
        ("digests", POINTER(c_uint8)),
        ("digest_count", c_uint64),
        ("extent_sha256", POINTER(c_uint8)),
        ("body_sha256", POINTER(c_uint8)),
        ("check_padding", c_uint32),
        ("is_unsynced", c_uint32),
        ("cancel", POINTER(c_int32)),
        ("seconds", c_double),
        ("progress", ProgressCallback),
        ("progress_context", c_void_p),
    )


class Metrics(ctypes.Structure):
    _fields_ = (
        ("struct_bytes", c_uint32),
        ("threads", c_uint32),
        ("bytes", c_uint64),
        ("direct_bytes", c_uint64),
        ("device_digest_bytes", c_uint64),
        ("wall_ns", c_uint64),
        ("file_ns", c_uint64),
        ("digest_ns", c_uint64),
        ("wait_ns", c_uint64),
        ("turn_ns", c_uint64),
        ("device_ns", c_uint64),
        ("copy_wait_ns", c_uint64),
        ("digest_wait_ns", c_uint64),
        ("longest_send_ns", c_uint64),
        ("first_ns", c_uint64),
        ("mark_ns", c_uint64 * MARKS),
        ("ring_bytes", c_uint64),
        ("failed_extent", c_uint64),
        ("failed_chunk", c_uint64),
        ("engine", c_uint32),
        ("engine_reason", c_char * 124),
    )


class Opening(ctypes.Structure):
    _fields_ = (
        ("struct_bytes", c_uint32),
        ("memory_node", c_int32),
        ("ring_bytes", c_uint64),
        ("wall_ns", c_uint64),
        ("threads_ns", c_uint64),
        ("driver_ns", c_uint64),
        ("touch_ns", c_uint64),
        ("pin_ns", c_uint64),
        ("streams_ns", c_uint64),
        ("digests_ns", c_uint64),
        ("cufile_ns", c_uint64),
    )


class RegionState(ctypes.Structure):
    _fields_ = (
        ("struct_bytes", c_uint32),
        ("mapped", c_uint32),
        ("address", c_uint64),
        ("bytes", c_uint64),
        ("epoch", c_uint64),
    )


_FUNCTIONS: dict[str, tuple[object, tuple[object, ...]]] = {
    "abi": (c_uint32, ()),
    "error": (c_char_p, ()),
    "open": (c_int, (POINTER(Settings), POINTER(c_void_p))),
    "close": (None, (c_void_p,)),
    "opening_of": (c_int, (c_void_p, POINTER(Opening))),
    "read": (c_int, (c_void_p, POINTER(Request), POINTER(Metrics))),
    "write": (c_int, (c_void_p, POINTER(Request), POINTER(Metrics))),
    "identify": (c_int, (POINTER(Request),)),
    "copy_rate": (c_int, (c_void_p, c_uint64, c_uint64, POINTER(Metrics))),
    "digest": (c_int, (c_uint32, c_void_p, c_uint64, POINTER(c_uint8))),
    "region_make": (c_int, (c_char_p, c_int32, c_uint64, c_uint64, POINTER(c_void_p))),
    "region_release": (c_int, (c_void_p,)),
    "region_map": (c_int, (c_void_p,)),
    "region_zero": (c_int, (c_void_p,)),
    "region_state_of": (c_int, (c_void_p, POINTER(RegionState))),
    "region_get": (c_int, (c_void_p, c_uint64, c_void_p, c_uint64)),
    "region_put": (c_int, (c_void_p, c_uint64, c_void_p, c_uint64)),
    "region_free": (c_int, (c_void_p,)),
    "graph_memory": (c_int, (c_char_p, c_int32, POINTER(c_uint64), POINTER(c_uint64))),
}


def declare(library: ctypes.CDLL) -> None:
    """Give every function of the library its types.

    Raises:
        AttributeError: the library lacks one.
    """
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, f"coldsnap_hydrate_{name}")
        function.restype = result
        function.argtypes = arguments
