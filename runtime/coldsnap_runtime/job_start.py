"""Starting a verb as a job, or finding the one that is already there.

The job is a forked child in its own session: neither the death of the caller nor that of its
connection reaches it. Two callers with one id meet at the job's lock: one starts, both relay.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from coldsnap.artifact import canonical, files
from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime import process_table
from coldsnap_runtime.job_follow import relay
from coldsnap_runtime.job_state import ABSENT, DEAD, DONE, RUNNING, Job
from coldsnap_runtime.job_work import JobRun
from coldsnap_runtime.timing import boot_id

Work = Callable[[JobRun], dict[str, Any]]
"""Runs the verb inside the job and returns its result line."""


def run_as_job(job: Job, verb: str, request: dict[str, Any], work: Work) -> int:
    """Start, attach or answer from the store; relays to stdout; returns the exit status.

    Raises:
        ColdSnapError: ``job.conflict``, ``file.disk-full``, ``job.stuck``, ``job.start-failed``.
    """
    digest = canonical.digest({"verb": verb, "request": request})
    _make_folder(job)
    lock = job.lock()
    while lock is None:
        _make_folder(job)
        lock = job.lock()
    child = 0
    try:
        state = job.state()
        if state in (RUNNING, DONE):
            _check_same(job, verb, digest)
        else:
            child = _fork(job, _prepare(job, verb, digest, state), work, lock)
    finally:
        os.close(lock)
    return relay(job, reap=lambda: _reap(child))


def _make_folder(job: Job) -> None:
    try:
        os.makedirs(job.folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise files.file_error(error, job.folder) from error


def _check_same(job: Job, verb: str, digest: str) -> None:
    if job.record.get("request_sha256") == digest:
        return
    raise ColdSnapError(
        "job.conflict",
        f"job {job.identity} is already there with another request (verb "
        f"{job.record.get('verb', '?')}, {job.record.get('request_sha256', '?')})",
        details=(f"asked now: verb {verb}, {digest}",),
        remedy="use a new job id; a finished job's answer is never given to another question",
    )


def _prepare(job: Job, verb: str, digest: str, state: str) -> dict[str, Any]:
    """Clear what an earlier attempt left; returns the record of the new one."""
    attempt = job.attempt + 1
    if state == DEAD:
        _clear_session(job)
    _remove(job.path("result.json"))
    return {
        "format": 1,
        "job": job.identity,
        "verb": verb,
        "request_sha256": digest,
        "attempt": attempt,
        "events_start": _trim_events(job, fresh=state == ABSENT),
        "boot_id": boot_id(),
        "started_unix": round(time.time(), 3),
    }


def _clear_session(job: Job) -> None:
    """Kill what a dead attempt left in its session (a dump tool, say)."""
    pid, start = job.process()
    if not pid:
        return
    try:
        process_table.kill_session(pid, start)
    except TimeoutError as error:
        raise ColdSnapError(
            "job.stuck",
            f"job {job.identity} died, and what it left behind cannot be ended: {error}",
            remedy="look at those processes (state D waits for a disk or a driver), then retry",
        ) from None


def _trim_events(job: Job, *, fresh: bool) -> int:
    """Where the new attempt's events begin; a line that a crash cut is removed."""
    path = job.path("events.jsonl")
    try:
        with open(path, "w+b" if fresh else "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - (1 << 20)))
            tail = file.read()
            end = size - len(tail) + tail.rfind(b"\n") + 1
            file.truncate(end)
            return end
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise files.file_error(error, path) from error


def _fork(job: Job, record: dict[str, Any], work: Work, lock: int) -> int:
    """Start the job's process and wait until it is on record; returns its pid."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    # Signals wait until the child has its own handlers: the caller's would run in it.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
    child = os.fork()
    if child == 0:
        _child(job, record, work, writer, lock)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
    os.close(writer)
    with open(reader, "rb") as file:
        answer = file.read(65536).decode("utf-8", "replace")
    if answer != "started":
        os.waitpid(child, 0)
        _remove(job.path("job.json"))
        code, _, message = answer.partition("|")
        raise ColdSnapError(
            code or "job.start-failed",
            f"job {job.identity} could not be started: {message or 'its process ended at once'}",
            remedy="free space in the state folder" if code == "file.disk-full" else "",
        )
    job.state()
    return child


def _child(job: Job, record: dict[str, Any], work: Work, writer: int, lock: int) -> NoReturn:
    """The job's process, from the fork to its end."""
    status = 1
    try:
        # The lock is kept until the job is on record: were the caller killed before, the next
        # one would find neither and start a second.
        run = JobRun(job, record, keep=(writer, lock))
        try:
            run.begin()
        except ColdSnapError as error:
            _say(writer, f"{error.code}|{error.message}")
            os._exit(1)
        os.close(lock)
        _say(writer, "started")
        status = run.end(work(run))
    finally:
        # Nothing of the caller's (buffers, exit handlers) may run a second time here.
        os._exit(status)


def _say(writer: int, text: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # the caller has gone; the job goes on
        os.write(writer, text.encode()[:60000])
    os.close(writer)


def _reap(child: int) -> None:
    if child:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, os.WNOHANG)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise files.file_error(error, path) from error
