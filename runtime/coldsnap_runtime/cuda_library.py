"""The driver's checkpoint calls (libcuda ``cuCheckpointProcess*``), by ctypes.

A process goes RUNNING -lock-> LOCKED -checkpoint-> CHECKPOINTED, and with restore and unlock back.
Process numbers are those of the caller's own PID namespace.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any

RUNNING, LOCKED, CHECKPOINTED, FAILED = "running", "locked", "checkpointed", "failed"
_STATES = (RUNNING, LOCKED, CHECKPOINTED, FAILED)

SUCCESS, OUT_OF_MEMORY, OS_ERROR, ILLEGAL_STATE, NOT_READY = 0, 2, 304, 401, 600
_NAMES = {
    1: "INVALID_VALUE",
    OUT_OF_MEMORY: "OUT_OF_MEMORY",
    3: "NOT_INITIALIZED",
    100: "NO_DEVICE",
    101: "INVALID_DEVICE",
    OS_ERROR: "OPERATING_SYSTEM",
    ILLEGAL_STATE: "ILLEGAL_STATE",
    NOT_READY: "NOT_READY",
    801: "NOT_SUPPORTED",
    999: "UNKNOWN",
}


class CudaCallError(Exception):
    """A call that the driver refused."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: CUDA error {code} ({_NAMES.get(code, 'see cuda.h')})")
        self.call = call
        self.code = code


class _LockArgs(ctypes.Structure):
    _fields_ = (
        ("timeout_ms", ctypes.c_uint),
        ("reserved0", ctypes.c_uint),
        ("reserved1", ctypes.c_uint64 * 7),
    )


class _NoArgs(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_uint64 * 8),)


class _Uuid(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_ubyte * 16),)


class _GpuPair(ctypes.Structure):
    _fields_ = (("old", _Uuid), ("new", _Uuid))


class _RestoreArgs(ctypes.Structure):
    _fields_ = (
        ("pairs", ctypes.POINTER(_GpuPair)),
        ("count", ctypes.c_uint),
        ("reserved", ctypes.c_ubyte * (64 - 8 - 4)),
    )


class CudaLibrary:
    """COLDSNAP_LIBCUDA names another library.

    Raises:
        OSError: there is no driver library.
        CudaCallError: it does not start.
        AttributeError: it is too old to have these calls.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ.get("COLDSNAP_LIBCUDA") or "libcuda.so.1")
        self._check("cuInit", self._library.cuInit(0))

    def state(self, pid: int) -> str:
        """Raises CudaCallError for a process without CUDA too."""
        value = ctypes.c_int(-1)
        call = "cuCheckpointProcessGetState"
        self._check(call, self._library.cuCheckpointProcessGetState(pid, ctypes.byref(value)))
        return _STATES[value.value] if 0 <= value.value < len(_STATES) else FAILED

    def lock(self, pid: int, milliseconds: int) -> None:
        """Let no new call in and wait for those in flight, at most so long."""
        self._call("Lock", pid, _LockArgs(milliseconds))

    def checkpoint(self, pid: int) -> None:
        """Move what is on devices into the process's memory and let go of the devices."""
        self._call("Checkpoint", pid, _NoArgs())

    def restore(self, pid: int, pairs: Sequence[tuple[str, str]]) -> None:
        """Move it back; `pairs` of GPU UUIDs (old, new), none for the same GPUs."""
        array = (_GpuPair * max(1, len(pairs)))(*(_pair(old, new) for old, new in pairs))
        arguments = _RestoreArgs(array if pairs else None, len(pairs))
        self._call("Restore", pid, arguments)

    def unlock(self, pid: int) -> None:
        self._call("Unlock", pid, _NoArgs())

    def _call(self, name: str, pid: int, arguments: Any) -> None:
        call = f"cuCheckpointProcess{name}"
        self._check(call, getattr(self._library, call)(pid, ctypes.byref(arguments)))

    @staticmethod
    def _check(call: str, code: int) -> None:
        if code != SUCCESS:
            raise CudaCallError(call, code)


def _pair(old: str, new: str) -> _GpuPair:
    return _GpuPair(_uuid(old), _uuid(new))


def _uuid(text: str) -> _Uuid:
    """``GPU-xxxxxxxx-xxxx-...`` as the driver has it."""
    digits = bytes.fromhex(text.removeprefix("GPU-").replace("-", ""))
    return _Uuid((ctypes.c_ubyte * 16)(*digits))
