"""Ending, listing and removing jobs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime import process_table
from coldsnap_runtime.job_follow import job_of
from coldsnap_runtime.job_state import ABSENT, RUNNING, Job, identities

if TYPE_CHECKING:
    from coldsnap_runtime.arguments import Arguments

_GRACE = 30.0
"""Seconds a cancelled job has for undoing."""
_START_SECONDS = 1.5
_KEEP = 7 * 86400.0
"""Seconds a finished job is kept by default."""


def cancel(arguments: Arguments) -> dict[str, Any]:
    """``job cancel ID [--grace S]``: TERM to the job, after the grace KILL to its session.

    A job that gets TERM undoes what it began, and ends.
    Returns ``{"state", "cancelled", "killed": [pids]}``; a job that is not running is left as
    it is (``cancelled`` false).

    Raises:
        ColdSnapError: ``job.stuck`` when processes of it cannot even be killed.
    """
    job = job_of(arguments)
    state = _await_start(job)
    if state != RUNNING:
        return {"state": state, "cancelled": False, "killed": []}
    pid, start = job.process()
    descriptor = process_table.open_pidfd(pid, start)
    if descriptor is not None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        process_table.wait_pidfd(descriptor, arguments.numbers.get("grace", _GRACE))
        os.close(descriptor)
    try:
        killed = process_table.kill_session(pid, start)
    except TimeoutError as error:
        raise ColdSnapError("job.stuck", f"job {job.identity} cannot be ended: {error}") from None
    return {"state": job.state(), "cancelled": True, "killed": killed}


def _await_start(job: Job) -> str:
    """The state; a job whose caller is just starting it is waited for, not missed."""
    deadline = time.monotonic() + _START_SECONDS
    while (state := job.state()) == ABSENT and time.monotonic() < deadline:
        time.sleep(0.02)
    return state


def list_jobs(arguments: Arguments) -> dict[str, Any]:
    """``job list``: id, verb, state, attempt and start of every job."""
    rows = []
    for identity in identities(arguments.state_dir):
        job = Job(arguments.state_dir, identity)
        state = job.state()
        if state != ABSENT:
            row: dict[str, Any] = {"job": identity, "state": state}
            row |= {name: job.record.get(name) for name in ("verb", "attempt", "started_unix")}
            rows.append(row)
    return {"jobs": rows}


def collect(arguments: Arguments) -> dict[str, Any]:
    """``job gc [--older S]``: remove the folders of jobs that ended at least S seconds ago.

    Running jobs, and jobs that somebody is starting right now, are left alone.
    """
    older = arguments.numbers.get("older", _KEEP)
    removed = [
        identity
        for identity in identities(arguments.state_dir)
        if _remove_if_old(Job(arguments.state_dir, identity), older)
    ]
    return {"removed": removed}


def _remove_if_old(job: Job, older: float) -> bool:
    lock = job.lock(wait=False)
    if lock is None:
        return False
    try:
        if job.state() == RUNNING or _age(job) < older:
            return False
        # Renamed first: a folder half removed must not look like a job.
        grave = os.path.join(os.path.dirname(job.folder), f".gc-{job.identity}-{os.getpid()}")
        os.rename(job.folder, grave)
        shutil.rmtree(grave, ignore_errors=True)
    finally:
        os.close(lock)
    return True


def _age(job: Job) -> float:
    newest = 0.0
    for name in ("job.json", "result.json", "events.jsonl"):
        with contextlib.suppress(FileNotFoundError):
            newest = max(newest, os.stat(job.path(name)).st_mtime)
    return time.time() - newest
