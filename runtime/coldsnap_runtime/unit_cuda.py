"""The CUDA state of one unit: found, taken out for a dump, brought back after it or a restore."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import read_regular
from coldsnap_runtime.cuda_checkpoint import (
    CudaSquad,
    Pairs,
    put_back,
    resume,
    suspend,
    with_cuda,
)
from coldsnap_runtime.cuda_errors import CudaProcess
from coldsnap_runtime.driver_memory import added, anonymous_ranges
from coldsnap_runtime.gpus import Gpus, read_gpus
from coldsnap_runtime.host_pids import host_pids
from coldsnap_runtime.preload_place import remembered_gpus
from coldsnap_runtime.timing import boottime
from coldsnap_runtime.unit_processes import mentions, open_paths, proc_of, processes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coldsnap_runtime.timing import Timing
    from coldsnap_runtime.unit_record import ProcessRef

_LIBRARY = "libcuda.so"
_DEVICES = "/dev/nvidia"
_ENGINE_RECORD = "device-memory.json"
_MAX_RECORD = 1 << 16


@contextlib.contextmanager
def suspended(
    init: ProcessRef, root_pid: int, control: Path, timing: Timing, driver: str = "c580"
) -> Iterator[dict[str, Any] | None]:
    """While the block runs, no CUDA state of the unit is on a device.

    Yields what a restore must know of it (``cuda`` of a capture), or None for a unit without.

    Raises:
        ColdSnapError: ``cuda.*``; the message or details say whether the unit runs on.
    """
    candidates = cuda_candidates(init.pid, root_pid)
    if not candidates:
        yield None
        return
    with CudaSquad(len(candidates)) as squad:
        found = with_cuda(squad, candidates, _holds_device)
        if not found:
            yield None
            return
        before = read_gpus()
        host_before = {process: anonymous_ranges(process.pid) for process in found}
        with timing.span("cuda-suspend"):
            begin = boottime()
            suspend(squad, found, _used(before)).note(timing, begin)
        record = _record(found, before, read_gpus(), control, driver)
        record["host_ranges"] = {
            str(process.inside): added(ranges, anonymous_ranges(process.pid))
            for process, ranges in host_before.items()
            if ranges
        }
        try:
            yield record
        except BaseException as error:
            troubles = put_back(squad, found, record["process_bytes"])
            if troubles and isinstance(error, ColdSnapError):
                error.changed = True
                error.details = (*error.details, *troubles)
            raise
        with timing.span("cuda-resume"):
            begin = boottime()
            resume(squad, found, record["process_bytes"]).note(timing, begin)


def bring_back(
    squad: CudaSquad, init: ProcessRef, cuda: dict[str, Any], pairs: Pairs, timing: Timing
) -> None:
    """CUDA state of freshly restored processes, back to the devices.

    Raises:
        ColdSnapError: ``cuda.*``; the generation must be ended then.
    """
    names = {int(item["pid"]): str(item["name"]) for item in cuda["processes"]}
    numbers = host_pids(init.pid, names)
    missing = sorted(set(names) - set(numbers))
    if missing:
        raise ColdSnapError(
            "cuda.process-died",
            f"process {missing[0]} ({names[missing[0]]}) ended right after the restore",
            remedy="see the engine's log",
        )
    found = [CudaProcess(numbers[inside], name, inside) for inside, name in names.items()]
    begin = boottime()
    resume(squad, found, int(cuda.get("process_bytes") or 0), pairs).note(timing, begin)


def cuda_candidates(init_pid: int, root_pid: int) -> list[CudaProcess]:
    """Processes of the unit that have loaded the driver's library, children first."""
    tree = [
        process
        for process in reversed(processes(init_pid, root_pid))
        if mentions(proc_of(init_pid) / str(process.pid) / "maps", _LIBRARY)
    ]
    numbers = host_pids(init_pid, (process.pid for process in tree))
    return [
        CudaProcess(numbers[process.pid], process.name, process.pid)
        for process in tree
        if process.pid in numbers
    ]


def _holds_device(pid: int) -> bool:
    return any(path.startswith(_DEVICES) for path in open_paths(pid))


def _used(gpus: Gpus) -> int:
    return sum(gpu.memory_total - gpu.memory_free for gpu in gpus.found)


def _record(
    found: list[CudaProcess], before: Gpus, after: Gpus, control: Path, driver: str
) -> dict[str, Any]:
    """GPUs of the unit are those whose memory its checkpoint freed."""
    freed = {gpu.uuid: gpu.memory_free for gpu in after.found}
    used = [gpu for gpu in before.found if freed.get(gpu.uuid, 0) - gpu.memory_free > 0] or list(
        before.found[:1]
    )
    process_bytes = sum(max(0, freed.get(gpu.uuid, 0) - gpu.memory_free) for gpu in used)
    return {
        "snapshot_driver": driver,
        "nvidia_driver": before.driver,
        "gpus": remembered_gpus(control, [{**gpu.identity(), "index": gpu.index} for gpu in used]),
        "processes": [{"pid": process.inside, "name": process.name} for process in found],
        "process_bytes": process_bytes,
        "engine_bytes": engine_bytes(control),
    }


def engine_bytes(control: Path) -> int:
    """What the engine gave back before and will want again, if it said so."""
    try:
        value = json.loads(read_regular(control / _ENGINE_RECORD, _MAX_RECORD))
        return max(0, int(value["bytes"]))
    except (ColdSnapError, ValueError, KeyError, TypeError):
        return 0
