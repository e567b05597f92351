"""libcoldsnap_nccl of this process: closes NCCL's communicators, makes them again.

All ranks call `close` when their streams are idle, and `rebuild` after the restore; between the
two every call of NCCL fails with a message. See native/bridge/README.md.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from coldsnap.artifact.errors import ColdSnapError

ABI = 1
_STOP = "stop this engine: its communicators are unusable; restore again or start cold"
_CODES = {
    1: ("nccl.invalid", ""),
    2: (
        "nccl.off",
        "start the engine with COLDSNAP_NCCL_BRIDGE=on and libcoldsnap_nccl preloaded",
    ),
    3: ("nccl.state", ""),
    4: ("nccl.busy", "wait until the engine is quiet; nothing was changed"),
    5: (
        "nccl.refused",
        "nothing was changed; drop what is named, or capture without the bridge",
    ),
    6: ("nccl.failed", _STOP),
    7: ("nccl.deadline", _STOP),
    8: (
        "nccl.exchange",
        "give all ranks the same fresh folder, or an exchange that reaches them all",
    ),
}
_GRAPHS_DROPPED, _ABORT = 1, 2

_Publish = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t
)
_Fetch = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_double,
)


class _Exchange(ctypes.Structure):
    _fields_ = (("context", ctypes.c_void_p), ("publish", _Publish), ("fetch", _Fetch))


@dataclass(frozen=True)
class Exchange:
    """How ranks in several processes find each other: by any key-value store."""

    publish: Callable[[str, bytes], object]
    """Rank 0 gives the value of a key, once."""
    fetch: Callable[[str, float], bytes]
    """The others wait for it, at most that many seconds."""


class NcclBridge:
    """The library, which this process was started with."""

    def __init__(self, calls: ctypes.CDLL) -> None:
        self._calls = calls
        calls.coldsnap_nccl_error.restype = ctypes.c_char_p
        calls.coldsnap_nccl_status.restype = ctypes.c_size_t
        calls.coldsnap_nccl_status.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        calls.coldsnap_nccl_close.argtypes = [ctypes.c_uint32, ctypes.c_double]
        calls.coldsnap_nccl_rebuild.argtypes = [ctypes.c_void_p, ctypes.c_double]
        calls.coldsnap_nccl_rebuild_by_folder.argtypes = [ctypes.c_char_p, ctypes.c_double]
        self._kept: list[Any] = []

    def status(self) -> dict[str, Any]:
        """``on``, ``state``, ``library``, ``version``, ``communicators`` and what is in the way."""
        size = self._calls.coldsnap_nccl_status(None, 0) + 1024
        buffer = ctypes.create_string_buffer(size)
        self._calls.coldsnap_nccl_status(buffer, size)
        found: dict[str, Any] = json.loads(buffer.value)
        return found

    def close(
        self, *, graphs_dropped: bool = False, abort: bool = False, seconds: float = 30.0
    ) -> None:
        """End all communicators and keep their handles.

        Args:
            graphs_dropped: every CUDA graph that holds collectives has been destroyed.
            abort: by ncclCommAbort, for engines whose ranks end in different orders.
            seconds: for calls that are under way, and for NCCL.

        Raises:
            ColdSnapError: ``nccl.*``; after ``nccl.busy`` and ``nccl.refused`` all is as it was.
        """
        flags = _GRAPHS_DROPPED * graphs_dropped | _ABORT * abort
        self._check(self._calls.coldsnap_nccl_close(flags, seconds))

    def rebuild(
        self, exchange: Exchange | str | os.PathLike[str] | None = None, *, seconds: float = 60.0
    ) -> None:
        """Make all communicators again behind their handles.

        Args:
            exchange: None where this process has all ranks; a folder that all ranks share and
                that was empty; or any other way.
            seconds: after that it is given up.

        Raises:
            ColdSnapError: ``nccl.*``; the communicators are unusable then.
        """
        if exchange is None:
            code = self._calls.coldsnap_nccl_rebuild(None, seconds)
        elif isinstance(exchange, Exchange):
            code = self._calls.coldsnap_nccl_rebuild(ctypes.byref(self._table(exchange)), seconds)
        else:
            code = self._calls.coldsnap_nccl_rebuild_by_folder(os.fsencode(exchange), seconds)
        self._check(code)

    def _table(self, exchange: Exchange) -> _Exchange:
        def publish(_: int, key: bytes, value: int, size: int) -> int:
            try:
                exchange.publish(key.decode(), ctypes.string_at(value, size))
            except Exception:  # noqa: BLE001 - C has no exceptions; the call fails
                return 1
            return 0

        def fetch(_: int, key: bytes, value: int, size: int, seconds: float) -> int:
            try:
                found = exchange.fetch(key.decode(), seconds)
            except Exception:  # noqa: BLE001 - same
                return 1
            if len(found) != size:
                return 1
            ctypes.memmove(value, found, size)
            return 0

        made = _Exchange(None, _Publish(publish), _Fetch(fetch))
        # A call that NCCL holds for ever may still come here after its deadline.
        self._kept.append(made)
        return made

    def _check(self, code: int) -> None:
        if code:
            name, remedy = _CODES.get(code, ("nccl.failed", _STOP))
            text = (self._calls.coldsnap_nccl_error() or b"").decode("utf-8", "replace")
            raise ColdSnapError(name, text, remedy=remedy)


def nccl_bridge() -> NcclBridge | None:
    """The bridge of this process; None where it was not preloaded, or is of another version."""
    calls = ctypes.CDLL(None)
    try:
        version = calls.coldsnap_nccl_abi()
    except AttributeError:
        return None
    return NcclBridge(calls) if version == ABI else None
