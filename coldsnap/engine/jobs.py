"""Jobs of the runtime that outlived the process that started them.

Before a change is put back, the job that was making it must be over: a job goes on when its
caller is killed, and would otherwise change the host after the recovery.
"""

from __future__ import annotations

from typing import Protocol

from coldsnap.engine.place import runtime_place
from coldsnap.sdk.host import Host, OperationRequest
from coldsnap.sdk.step import RuntimeRef

OPERATION = "coldsnap_core.operations:jobs_ended"
_TIMEOUT = 90.0


class JobEnder(Protocol):
    def end(self, host: Host, job: str) -> None:
        """End the running jobs with this id or ``<id>.*``; they undo what they began.

        On a host without a runtime pack there are none.

        Raises:
            ColdSnapError: ``host.unreachable``, ``job.stuck``.
        """


class TargetJobs:
    """The `JobEnder` that asks the runtime pack on the host."""

    def __init__(self, runtime: RuntimeRef | None) -> None:
        self._runtime = runtime

    def end(self, host: Host, job: str) -> None:
        if self._runtime is None:
            return  # no pack, no jobs
        place = runtime_place(host, self._runtime)
        host.perform(OperationRequest(OPERATION, {"job": job, **place}), timeout=_TIMEOUT)


class NoJobs:
    """For steps without runtime jobs, and for tests."""

    def end(self, host: Host, job: str) -> None:
        del host, job
