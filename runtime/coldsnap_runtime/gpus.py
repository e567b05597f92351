"""The GPUs of this host as NVML tells them. COLDSNAP_LIBNVML names another library."""

from __future__ import annotations

import ctypes
import os
from dataclasses import asdict, dataclass
from typing import Any

_TEXT = 96
_MAX_PROCESSES = 256


@dataclass(frozen=True)
class Gpu:
    index: int
    uuid: str
    name: str
    compute_capability: str
    memory_total: int
    memory_free: int
    holders: tuple[tuple[int, int], ...] = ()
    """(pid, bytes) of the processes that compute on it."""

    def identity(self) -> dict[str, Any]:
        """What a capture remembers of it."""
        fields = asdict(self)
        return {key: fields[key] for key in ("uuid", "name", "compute_capability", "memory_total")}


@dataclass(frozen=True)
class Gpus:
    driver: str
    """Version; empty where there is none."""
    found: tuple[Gpu, ...]

    def by_uuid(self, uuid: str) -> Gpu | None:
        return next((gpu for gpu in self.found if gpu.uuid == uuid), None)

    def by_index(self, index: int) -> Gpu | None:
        return next((gpu for gpu in self.found if gpu.index == index), None)


class _Memory(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_ulonglong) for name in ("total", "free", "used"))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


def read_gpus() -> Gpus:
    """All of them; none on a host without the NVIDIA driver."""
    try:
        nvml = ctypes.CDLL(os.environ.get("COLDSNAP_LIBNVML") or "libnvidia-ml.so.1")
    except OSError:
        return Gpus("", ())
    if nvml.nvmlInit_v2() != 0:
        return Gpus("", ())
    try:
        count = ctypes.c_uint()
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        driver = _text(nvml.nvmlSystemGetDriverVersion)
        return Gpus(driver, tuple(_gpu(nvml, index) for index in range(count.value)))
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> Gpu:
    handle, memory = ctypes.c_void_p(), _Memory()
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
    nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))
    return Gpu(
        index=index,
        uuid=_text(nvml.nvmlDeviceGetUUID, handle),
        name=_text(nvml.nvmlDeviceGetName, handle),
        compute_capability=f"{major.value}.{minor.value}",
        memory_total=memory.total,
        memory_free=memory.free,
        holders=_holders(nvml, handle),
    )


def _holders(nvml: Any, handle: ctypes.c_void_p) -> tuple[tuple[int, int], ...]:
    if not hasattr(nvml, "nvmlDeviceGetComputeRunningProcesses_v3"):
        return ()
    count, processes = ctypes.c_uint(_MAX_PROCESSES), (_Process * _MAX_PROCESSES)()
    code = nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), processes)
    if code != 0:
        return ()
    return tuple((process.pid, process.bytes) for process in processes[: count.value])


def _text(function: Any, *arguments: Any) -> str:
    buffer = ctypes.create_string_buffer(_TEXT)
    if function(*arguments, buffer, _TEXT) != 0:
        return ""
    return buffer.value.decode("utf-8", "replace")
