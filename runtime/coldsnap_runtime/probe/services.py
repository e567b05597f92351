"""What serves units beside the kernel: docker, the NVIDIA driver, CUDA."""

from __future__ import annotations

import ctypes
import json
import os
import socket
from typing import TYPE_CHECKING

from coldsnap_runtime.probe.feature import FAILED, UNSUPPORTED, Options, lacking, passed

if TYPE_CHECKING:
    from typing import Any

    from coldsnap_runtime.probe.feature import Feature

_CHECKPOINT_API = tuple(
    "cuCheckpointProcess" + name for name in ("GetState", "Lock", "Checkpoint", "Restore", "Unlock")
)


def probe_docker(options: Options) -> Feature:
    del options
    path = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").partition("unix://")[2]
    if not path or not os.path.exists(path):
        remedy = "start dockerd; units with `runtime: process` do without"
        return lacking(UNSUPPORTED, f"no docker socket at {path or 'DOCKER_HOST'}", remedy)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(5)
    try:
        connection.connect(path)
        connection.sendall(b"GET /version HTTP/1.0\r\nHost: docker\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
        version = json.loads(answer.partition(b"\r\n\r\n")[2]).get("Version", "")
    except (OSError, ValueError) as error:
        return lacking(
            FAILED, f"docker does not answer on {path}: {error}", "look at dockerd's log"
        )
    finally:
        connection.close()
    return passed(socket=path, version=version)


def probe_nvidia(options: Options) -> Feature:
    del options
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        remedy = "install the NVIDIA driver; in a container: --gpus"
        return lacking(UNSUPPORTED, "no NVIDIA driver (libnvidia-ml.so.1)", remedy)
    code = nvml.nvmlInit_v2()
    if code != 0:
        return lacking(FAILED, f"NVML does not start (code {code})", "look at nvidia-smi")
    version = _nvml_text(nvml.nvmlSystemGetDriverVersion)
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    gpus = [_gpu(nvml, index) for index in range(count.value)]
    if not gpus:
        return lacking(FAILED, "the driver shows no GPU", "in a container: --gpus", driver=version)
    return passed(driver=version, gpus=gpus)


def probe_cuda_checkpoint(options: Options) -> Feature:
    del options
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return lacking(UNSUPPORTED, "no CUDA driver library (libcuda.so.1)", "install the driver")
    missing = [name for name in _CHECKPOINT_API if not hasattr(cuda, name)]
    if missing:
        reason = f"libcuda lacks {', '.join(missing)}"
        return lacking(UNSUPPORTED, reason, "use an NVIDIA driver >= 570")
    return passed(api=list(_CHECKPOINT_API))


def _nvml_text(function: Any, *arguments: Any) -> str:
    buffer = ctypes.create_string_buffer(96)
    return buffer.value.decode() if function(*arguments, buffer, 96) == 0 else ""


class _NvmlMemory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


def _gpu(nvml: Any, index: int) -> dict[str, Any]:
    handle, memory = ctypes.c_void_p(), _NvmlMemory()
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
    nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))
    return {
        "index": index,
        "name": _nvml_text(nvml.nvmlDeviceGetName, handle),
        "uuid": _nvml_text(nvml.nvmlDeviceGetUUID, handle),
        "memory_total": memory.total,
        "memory_free": memory.free,
        "compute_capability": f"{major.value}.{minor.value}",
    }
