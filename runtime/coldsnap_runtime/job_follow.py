"""Reading a running job: `job follow` (long poll) and relaying one to its end."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from coldsnap_runtime import process_table
from coldsnap_runtime.arguments import Arguments, UsageError
from coldsnap_runtime.job_state import ABSENT, DEAD, RUNNING, Job
from coldsnap_runtime.protocol import write_line

if TYPE_CHECKING:
    from collections.abc import Callable

_TICK = 0.02
"""Seconds between two looks for new events; the end of a job is noticed at once."""
_MAX_READ = 4 << 20
"""Bytes of events per answer of `job follow`; the next call goes on."""


def follow(arguments: Arguments) -> int:
    """``job follow ID [--offset N] [--wait S]``: new event lines, then the state.

    The last line is ``{"offset": N, "state": running|done|failed|dead|absent}``. Returns as soon
    as there is something new, the job is at its end, or `wait` seconds passed.
    """
    job = job_of(arguments)
    offset = int(arguments.numbers.get("offset", 0))
    deadline = time.monotonic() + arguments.numbers.get("wait", 0.0)
    while True:
        state = job.state()
        lines, end = read_events(job, offset)
        if lines or state not in (RUNNING, ABSENT) or time.monotonic() >= deadline:
            break
        time.sleep(_TICK)
    sys.stdout.write(lines)
    write_line({"offset": end, "state": state})
    return 0


def wait(arguments: Arguments) -> int:
    """``job wait ID``: the events of the present attempt, then its result line."""
    job = job_of(arguments)
    if job.state() == ABSENT:
        write_line(absent_line(job))
        return 1
    return relay(job)


def relay(job: Job, reap: Callable[[], None] = lambda: None) -> int:
    """Copy events to stdout until the job ends, then its result; returns the exit status.

    `reap` is called while waiting (the parent of the job collects its exit status there).
    """
    offset = job.events_start
    descriptor = process_table.open_pidfd(*job.process()) if job.process()[0] else None
    try:
        while True:
            state = job.state()
            lines, offset = read_events(job, offset)
            if lines:
                sys.stdout.write(lines)
                sys.stdout.flush()
            elif state != RUNNING:
                return _finish(job, state)
            elif descriptor is not None:
                process_table.wait_pidfd(descriptor, _TICK)
            else:
                time.sleep(_TICK)
            reap()
    finally:
        if descriptor is not None:
            os.close(descriptor)


def read_events(job: Job, offset: int) -> tuple[str, int]:
    """(whole lines from `offset` on, the offset after them); never half a line."""
    try:
        with open(job.path("events.jsonl"), "rb") as file:
            file.seek(offset)
            data = file.read(_MAX_READ)
    except FileNotFoundError:
        return "", offset
    whole = data[: data.rfind(b"\n") + 1]
    return whole.decode("utf-8", "replace"), offset + len(whole)


def job_of(arguments: Arguments) -> Job:
    if len(arguments.words) != 1:
        raise UsageError(f"{arguments.verb.replace('.', ' ')} needs exactly one job id")
    try:
        return Job(arguments.state_dir, arguments.words[0])
    except ValueError as error:
        raise UsageError(str(error)) from None


def absent_line(job: Job) -> dict[str, object]:
    from coldsnap.artifact.errors import ColdSnapError  # noqa: PLC0415  (costs milliseconds)

    error = ColdSnapError("job.unknown", f"there is no job {job.identity} on this host")
    return {"event": "result", "ok": False, "error": error.to_json()}


def _finish(job: Job, state: str) -> int:
    line = _dead_line(job) if state in (DEAD, ABSENT) else job.result_line()
    write_line(line or _dead_line(job))
    return 0 if line is not None and line.get("ok") is True else 1


def _dead_line(job: Job) -> dict[str, object]:
    from coldsnap.artifact.errors import ColdSnapError  # noqa: PLC0415  (costs milliseconds)

    verb = job.record.get("verb", "?")
    error = ColdSnapError(
        "job.dead",
        f"job {job.identity} ({verb}) ended without a result: its process was killed "
        "or the host went down",
        details=tuple(_log_tail(job)),
        remedy="go on with the run, this starts over then: coldsnap plan resume RUN",
        changed=True,
    )
    return {"event": "result", "ok": False, "error": error.to_json()}


def _log_tail(job: Job) -> list[str]:
    try:
        with open(job.path("log"), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return lines[-10:]
