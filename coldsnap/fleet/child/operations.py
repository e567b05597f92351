"""Operations on one host: genuine pyinfra operations, run to their end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gevent
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.operations import run_host_op
from pyinfra.api.state import StateStage

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet.child import jobs, shell_calls
from coldsnap.fleet.child.failures import last_lines, lost_error, sudo_refusal
from coldsnap.fleet.child.lane import Lane
from coldsnap.fleet.child.names import load_operation
from coldsnap.fleet.child.output import EventLines, Tail
from coldsnap.fleet.child.shells import ConnectionLostError
from coldsnap.fleet.child.targets import Target

TAIL_LIMIT = 64 << 10
"""Bytes of standard output and of standard error that a result carries."""
_FAILED = "host.operation-failed"
_NOT_THE_JOBS = ("job.detached", "job.unknown")
"""Codes of the runtime that say something of a caller, not of the job."""
PROGRESS_SECONDS = 0.1
"""Least time between two progress events of one operation."""


class Performance:
    """One operation being performed."""

    def __init__(
        self, target: Target, request: dict[str, Any], emit: Callable[[dict[str, Any]], None]
    ) -> None:
        self.target = target
        self.name = str(request["operation"])
        self.args: dict[str, Any] = dict(request["args"])
        self.job: str | None = request.get("job")
        self.timeout: float | None = request.get("timeout")
        self.events = EventLines(Throttle(emit))
        self.stdout = Tail(TAIL_LIMIT)
        self.orphaned = False
        """The parent is gone: a job is left alone, because a resumed run will look for it."""

    def perform(self) -> dict[str, Any]:
        """Answer ``{"changed", "result", "stdout", "stderr"}``; `result` is a result line or None.

        Raises:
            ColdSnapError: ``host.timeout``, ``run.cancelled``, ``host.operation-failed``,
                ``host.unreachable``, ``host.unknown-name``.
        """
        return self._bounded(self._perform_or_rejoin)

    def perform_rejoined(self) -> dict[str, Any]:
        """As `perform`, for an operation whose job an earlier child has started."""
        return self._bounded(lambda: self._rejoin(self._silent()))

    def _bounded(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            with gevent.Timeout(self.timeout, _LateError()):
                return work()
        except _LateError:
            raise self._late(self._end_job()) from None
        except gevent.GreenletExit:
            raise self._cancelled(self._end_job()) from None

    def _perform_or_rejoin(self) -> dict[str, Any]:
        try:
            report = self._perform()
        except ConnectionLostError as error:
            if self.job is None:
                shell_calls.end_group(self.target, error.group)
            lost = lost_error(self.target.address, str(error), changed=True)
            if self.job is None:
                raise lost from error
            return self._rejoin(lost)
        except ColdSnapError as error:
            if self.job is None or error.code != _FAILED:
                raise
            return self._rejoin(error)
        if self.job is not None and not self._has_outcome():
            return self._rejoin(self._silent())
        return report

    def _rejoin(self, otherwise: ColdSnapError) -> dict[str, Any]:
        """Wait for the job that this operation has started, over a new connection.

        Whoever relayed the job is gone, but the job may well go on: it outlives its callers.

        Raises:
            ColdSnapError: `otherwise`, if there is no such job.
        """
        self.events.result = None
        jobs.wait(self.target, self.args, str(self.job), [self.events, self.stdout])
        self.events.close()
        if not self._has_outcome():
            raise otherwise
        return self._report(changed=True, stderr="")

    def _has_outcome(self) -> bool:
        """Whether the result line is the job's own."""
        result = self.events.result
        error = result.get("error") if result is not None else None
        code = error.get("code") if isinstance(error, dict) else None
        return result is not None and code not in _NOT_THE_JOBS

    def _silent(self) -> ColdSnapError:
        return ColdSnapError(
            _FAILED,
            f"{self.name} ended without a result",
            where=self.target.name,
            details=tuple(self.stdout.text().splitlines()[-3:]),
            changed=True,
        )

    def _perform(self) -> dict[str, Any]:
        with self.target.lane() as lane:
            lane.listeners += [self.events, self.stdout]
            changed, succeeded = self._run(lane)
            self.events.close()
            if not succeeded and self.events.result is None:
                raise self._failed(lane)
            return self._report(changed=changed, stderr=lane.last.stderr.text())

    def _report(self, *, changed: bool, stderr: str) -> dict[str, Any]:
        return {
            "changed": changed,
            "result": self.events.result,
            "stdout": self.stdout.text(),
            "stderr": stderr[-TAIL_LIMIT:],
        }

    def _run(self, lane: Lane) -> tuple[bool, bool]:
        """Whether it changed something, and whether it succeeded."""
        function = load_operation(self.name)
        try:
            meta = function(**self.args)
            lane.state.current_stage = StateStage.Execute
            lane.state.is_executing = True
            succeeded = bool(run_host_op(lane.state, lane.host, meta._hash))  # noqa: SLF001
        except (ConnectionLostError, ColdSnapError):
            raise
        except PyinfraError:
            raise self._failed(lane) from None
        except Exception as error:
            raise self._broken(error) from error
        if isinstance(lane.last.failure, ConnectionLostError):
            raise lane.last.failure
        return bool(meta.did_change()), succeeded

    def _failed(self, lane: Lane) -> ColdSnapError:
        refused = sudo_refusal(self.target.address, lane.last)
        if refused is not None:
            return refused
        status, failure = lane.last.status, lane.last.failure
        if failure is not None:
            how, details = str(failure), last_lines(lane.last)
        elif status:
            how, details = f"exit status {status}", last_lines(lane.last)
        else:  # no command failed: pyinfra or a Python callback did
            lines = [line for text in lane.said for line in text.strip().splitlines()]
            how, details = "pyinfra gave it up", tuple(line.strip()[:500] for line in lines[-5:])
        return ColdSnapError(
            _FAILED,
            f"{self.name} failed: {how}",
            where=self.target.name,
            details=details,
            changed=True,
        )

    def _broken(self, error: Exception) -> ColdSnapError:
        return ColdSnapError(
            _FAILED,
            f"{self.name} failed: {type(error).__name__}: {error}"[:500],
            where=self.target.name,
            cause="the operation's own code raised it",
        )

    def _end_job(self) -> str:
        """Cancel the job, if there is one; what came of it, in words."""
        if self.job is None:
            return "its processes were ended"
        if self.orphaned:
            return ""
        return jobs.cancel(self.target, self.args, self.job)

    def _late(self, end: str) -> ColdSnapError:
        return ColdSnapError(
            "host.timeout",
            f"{self.name} did not end within {self.timeout:g} s; {end}",
            where=self.target.name,
            remedy="give the step a longer timeout",
            changed=True,
        )

    def _cancelled(self, end: str) -> ColdSnapError:
        return ColdSnapError(
            "run.cancelled",
            f"{self.name} was cancelled; {end}",
            where=self.target.name,
            changed=True,
        )


class _LateError(BaseException):
    """The operation's time is over; no Exception, so that foreign code does not catch it."""


class Throttle:
    """Lets through all phases and logs, and progress ten times a second."""

    def __init__(self, emit: Callable[[dict[str, Any]], None]) -> None:
        self._emit = emit
        self._last = 0.0

    def __call__(self, event: dict[str, Any]) -> None:
        now = time.monotonic()
        is_end = event.get("done") is not None and event.get("done") == event.get("total")
        if event.get("event") == "progress" and not is_end:
            if now - self._last < PROGRESS_SECONDS:
                return
            self._last = now
        self._emit(event)
