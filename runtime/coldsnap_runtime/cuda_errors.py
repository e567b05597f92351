"""Why a checkpoint call of the driver failed, in words."""

from __future__ import annotations

from dataclasses import dataclass

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.cuda_library import OUT_OF_MEMORY, RUNNING, CudaCallError
from coldsnap_runtime.cuda_worker import CudaGoneError, CudaHungError
from coldsnap_runtime.host_pids import is_process

LOCK_SECONDS = 30.0
"""For work that is in flight on the devices to end."""


@dataclass(frozen=True)
class CudaProcess:
    pid: int
    """On the host."""
    name: str = ""
    inside: int = 0
    """Inside the unit."""

    def __str__(self) -> str:
        shown = self.inside or self.pid
        return f"process {shown} ({self.name})" if self.name else f"process {shown}"


def require_running(process: CudaProcess, state: str) -> None:
    if state == RUNNING:
        return
    raise ColdSnapError(
        "cuda.busy",
        f"the CUDA state of {process} is {state}, not running",
        cause="another tool is checkpointing it, or died while it did",
        remedy="end that tool; if there is none, launch or restore the unit again",
    )


def failure(
    call: str, process: CudaProcess, error: CudaCallError | CudaGoneError | CudaHungError
) -> ColdSnapError:
    """The named reason for a call that failed."""
    details = (str(error),)
    if not is_process(process.pid):
        return ColdSnapError(
            "cuda.process-died",
            f"{process} ended during the driver's {call}",
            details=details,
            remedy="see the engine's log and the kernel's (Xid), then launch or restore again",
        )
    if isinstance(error, CudaHungError):
        return ColdSnapError(
            "cuda.hung",
            f"the driver's {call} of {process} does not return",
            details=details,
            cause="the driver waits for the process, for its peers, or for a device",
            remedy="close communicators between processes before a capture (NCCL); else report it "
            "with the driver's version",
        )
    if isinstance(error, CudaGoneError):
        return unusable(error)
    if call == "lock":
        return ColdSnapError(
            "cuda.lock-timeout",
            f"{process} cannot be locked within {LOCK_SECONDS:.0f} s",
            details=details,
            cause="work on the device does not end, or several processes share CUDA state (NCCL)",
            remedy="drain the engine; close communicators between its processes first",
        )
    if call == "restore" and error.code == OUT_OF_MEMORY:
        return ColdSnapError(
            "cuda.out-of-memory",
            f"the device has too little free memory for the CUDA state of {process}",
            details=details,
            cause="another process took it meanwhile; the driver never restores this process now",
            remedy="free the GPU, then restore the artifact again; do not retry in place",
        )
    kind = "restore" if call in {"restore", "unlock"} else "checkpoint"
    return ColdSnapError(
        f"cuda.{kind}-failed",
        f"the driver's {call} of {process} failed",
        details=details,
        remedy="memory shared between processes (CUDA IPC, NCCL) must be closed before a capture",
    )


def unusable(error: Exception) -> ColdSnapError:
    if isinstance(error, CudaHungError):
        return ColdSnapError("cuda.hung", f"the driver does not answer: {error}")
    return ColdSnapError(
        "cuda.unusable",
        str(error),
        remedy="install an NVIDIA driver >= 580; see coldsnap doctor",
    )
