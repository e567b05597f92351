"""CUDA state of a unit's processes: out of the devices before a dump, back after a restore.

All processes are locked before one is checkpointed, children first and side by side: ranks that
wait for each other in the driver would never lock one after the other. What was found is put back
on any failure; what cannot be put back is said.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.cuda_errors import (
    LOCK_SECONDS,
    CudaProcess,
    failure,
    require_running,
    unusable,
)
from coldsnap_runtime.cuda_library import CHECKPOINTED, LOCKED, RUNNING, CudaCallError
from coldsnap_runtime.cuda_worker import CudaGoneError, CudaHungError, CudaWorker, Outcome
from coldsnap_runtime.host_pids import is_process

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldsnap_runtime.timing import Timing

_MARGIN_SECONDS = 5.0
"""Beyond the deadline of a lock, which the driver itself keeps."""
_STATE_SECONDS = 10.0
_MOVE_SECONDS = 120.0
_SLOWEST_BYTES_PER_SECOND = 0.5e9
"""Of a checkpoint or restore; measured are 4 to 7 GB/s."""

Pairs = tuple[tuple[str, str], ...]


class CudaSquad:
    """Workers, one for each process, forked when it is made; close it, or use it in a with."""

    def __init__(self, count: int) -> None:
        self._workers = [CudaWorker() for _ in range(count)]

    def __enter__(self) -> CudaSquad:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        for worker in self._workers:
            worker.close()

    def each(
        self, calls: Sequence[tuple[str, int, tuple[object, ...]]], seconds: float
    ) -> list[Outcome]:
        """All calls at the same time; outcomes in their order."""
        for number in range(len(calls)):
            if number == len(self._workers):
                self._workers.append(CudaWorker())
            elif not self._workers[number].is_usable:
                self._workers[number].close()
                self._workers[number] = CudaWorker()
        used = self._workers[: len(calls)]
        for worker, (call, pid, arguments) in zip(used, calls, strict=True):
            worker.begin(call, pid, *arguments)
        deadline = time.monotonic() + seconds
        return [worker.finish(deadline - time.monotonic()) for worker in used]


def with_cuda(
    squad: CudaSquad, candidates: Sequence[CudaProcess], holds_device: Callable[[int], bool]
) -> list[CudaProcess]:
    """Those of `candidates` whose CUDA state the driver can checkpoint, in their order.

    Raises:
        ColdSnapError: ``cuda.not-a-process``, ``cuda.not-checkpointable`` for one that holds
            devices all the same, ``cuda.busy`` for one that is locked or checkpointed already,
            ``cuda.unusable``, ``cuda.hung``.
    """
    for process in candidates:
        if not is_process(process.pid):
            raise ColdSnapError(
                "cuda.not-a-process", f"{process} is a thread or has ended; the driver needs a PID"
            )
    found: list[CudaProcess] = []
    outcomes = squad.each([("state", p.pid, ()) for p in candidates], _STATE_SECONDS)
    for process, outcome in zip(candidates, outcomes, strict=True):
        if outcome.error is None:
            require_running(process, str(outcome.value))
            found.append(process)
        elif not isinstance(outcome.error, CudaCallError):
            raise unusable(outcome.error)
        elif holds_device(process.pid):
            raise ColdSnapError(
                "cuda.not-checkpointable",
                f"{process} holds NVIDIA devices, but the driver finds no CUDA state in it",
                details=(str(outcome.error),),
                cause="it uses NVML, graphics or a library of its own on the device",
                remedy="keep such a process out of the unit, or let it close the device first",
            )
    return found


def suspend(squad: CudaSquad, processes: Sequence[CudaProcess], device_bytes: int = 0) -> Timings:
    """Take the CUDA state of all processes out of the devices.

    Args:
        squad: makes the calls.
        processes: children first; all RUNNING.
        device_bytes: what they hold on devices, for the deadline.

    Raises:
        ColdSnapError: ``cuda.lock-timeout``, ``cuda.hung``, ``cuda.process-died``,
            ``cuda.checkpoint-failed``; all run as before then, or `changed` is set and the
            details name those that do not.
    """
    timings = Timings()
    try:
        lock = (LOCK_SECONDS, int(LOCK_SECONDS * 1000))
        _step(squad, processes, "lock", (lock[1],), lock[0] + _MARGIN_SECONDS, timings)
        _step(squad, processes, "checkpoint", (), _move_seconds(device_bytes), timings)
    except ColdSnapError as error:
        _tell(error, put_back(squad, processes, device_bytes))
        raise
    return timings


def resume(
    squad: CudaSquad,
    processes: Sequence[CudaProcess],
    device_bytes: int = 0,
    pairs: Pairs = (),
) -> Timings:
    """Bring the CUDA state back to the devices and let the processes run.

    Args:
        squad: makes the calls.
        processes: all CHECKPOINTED, and not stopped.
        device_bytes: for the deadline.
        pairs: GPU UUIDs (captured, here); empty for the same ones.

    Raises:
        ColdSnapError: ``cuda.out-of-memory`` (the driver cannot restore that process ever
            after), ``cuda.hung``, ``cuda.process-died``, ``cuda.restore-failed``. The processes
            must be ended then.
    """
    timings = Timings()
    try:
        _step(squad, processes, "restore", (pairs,), _move_seconds(device_bytes), timings)
        _step(squad, processes, "unlock", (), _MOVE_SECONDS, timings)
    except ColdSnapError as error:
        error.changed = True
        raise
    return timings


def put_back(
    squad: CudaSquad, processes: Sequence[CudaProcess], device_bytes: int = 0
) -> list[str]:
    """Let every process run again, from whatever state; says of which ones that failed."""
    troubles: list[str] = []
    for process in processes:
        try:
            _walk_back(squad, process, device_bytes)
        except (CudaCallError, CudaGoneError, CudaHungError) as error:
            if is_process(process.pid):
                troubles.append(f"{process} cannot go on: {error}")
            else:
                troubles.append(f"{process} has ended")
    return troubles


class Timings:
    """Seconds by (call, process)."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, CudaProcess, float]] = []

    def note(self, timing: Timing, begin: float) -> None:
        """Add them as spans that begin at `begin`, as far as that is known."""
        at = {call: 0.0 for call, _, _ in self.calls}
        start = begin
        for call in at:
            longest = 0.0
            for name, process, seconds in self.calls:
                if name == call:
                    timing.add(f"cuda-{call}", start, seconds, process=process.name or process.pid)
                    longest = max(longest, seconds)
            start += longest


def _step(
    squad: CudaSquad,
    processes: Sequence[CudaProcess],
    call: str,
    arguments: tuple[object, ...],
    seconds: float,
    timings: Timings,
) -> None:
    outcomes = squad.each([(call, process.pid, arguments) for process in processes], seconds)
    failed: ColdSnapError | None = None
    for process, outcome in zip(processes, outcomes, strict=True):
        timings.calls.append((call, process, outcome.seconds))
        if outcome.error is not None:
            failed = failed or failure(call, process, outcome.error)
    if failed is not None:
        raise failed


def _walk_back(squad: CudaSquad, process: CudaProcess, device_bytes: int) -> None:
    def ask(call: str, *arguments: object, seconds: float = _STATE_SECONDS) -> object:
        outcome = squad.each([(call, process.pid, arguments)], seconds)[0]
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    state = ask("state")
    if state == CHECKPOINTED:
        ask("restore", (), seconds=_move_seconds(device_bytes))
        state = ask("state")
    if state == LOCKED:
        ask("unlock", seconds=_MOVE_SECONDS)
        state = ask("state")
    if state != RUNNING:
        raise CudaGoneError(f"its CUDA state is {state}")


def _move_seconds(device_bytes: int) -> float:
    return _MOVE_SECONDS + device_bytes / _SLOWEST_BYTES_PER_SECOND


def _tell(error: ColdSnapError, troubles: list[str]) -> None:
    if troubles:
        error.changed = True
        error.details = (*error.details, *troubles)
    else:
        error.details = (*error.details, "all its processes run again")
