"""The inside of a job: the process set apart, its events, its result."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import TYPE_CHECKING, Any

from coldsnap.artifact import files
from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime import process_table
from coldsnap_runtime.state_ownership import give_back_state

if TYPE_CHECKING:
    from coldsnap_runtime.job_state import Job

_RESERVE = 64 << 10
"""Bytes kept aside, so that a job can say why it failed when the disk is full."""
_MAX_EVENTS = 64 << 20
"""Bytes of events per job; later ones are dropped (they are advisory, the result is not)."""
_STDERR = 2


class JobRun:
    """`begin` in the fresh child, `emit` while the verb runs, `end` with its result line."""

    def __init__(self, job: Job, record: dict[str, Any], keep: tuple[int, ...]) -> None:
        self.job = job
        self._record = record
        self._keep = keep
        self._events = -1

    def begin(self) -> None:
        """Leave the caller's session and files, and write down who runs the job.

        Raises:
            ColdSnapError: ``file.disk-full``, ``file.unwritable``.
        """
        os.setsid()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.chdir("/")
        os.umask(0o077)
        try:
            self._take_files()
            self._reserve()
        except OSError as error:
            raise files.file_error(error, self.job.folder) from error
        myself = process_table.stat(os.getpid())
        self._record["pid"] = os.getpid()
        self._record["start_ticks"] = myself.start if myself else 0
        # After a power cut no job runs: without this record it is run anew, as it must be.
        data = json.dumps(self._record).encode()
        files.write_atomic(self.job.path("job.json"), data, sync="none")

    def emit(self, event: dict[str, Any]) -> None:
        """Append one event; an event that finds no room is dropped whole."""
        line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        try:
            size = os.fstat(self._events).st_size
            if size + len(line) > _MAX_EVENTS:
                return
            if os.write(self._events, line) != len(line):
                os.ftruncate(self._events, size)
        except OSError:
            return

    def end(self, line: dict[str, Any]) -> int:
        """Store the result; returns the exit status."""
        try:
            self._store(line)
        except ColdSnapError:
            _unlink(self.job.path("reserve"))
            self._store(line)
        _unlink(self.job.path("reserve"))
        with contextlib.suppress(OSError, ColdSnapError):
            state_dir = os.path.dirname(os.path.dirname(self.job.folder))
            give_back_state(state_dir, self.job.identity)
            if str(self._record.get("verb", "")).startswith("unit."):
                from coldsnap_runtime.tidy import tidy  # noqa: PLC0415 - most jobs need none of it

                tidy(state_dir)
        return 0 if line.get("ok") is True else 1

    def _store(self, line: dict[str, Any]) -> None:
        value = {"format": 1, "attempt": self._record["attempt"], "line": line}
        files.write_atomic(self.job.path("result.json"), json.dumps(value).encode())

    def _take_files(self) -> None:
        log = os.open(self.job.path("log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        # A pipe of the caller held here would keep its connection open after it has gone.
        for name in os.listdir("/proc/self/fd"):
            if int(name) > _STDERR and int(name) not in self._keep:
                _close(int(name))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._events = os.open(self.job.path("events.jsonl"), flags, 0o600)

    def _reserve(self) -> None:
        descriptor = os.open(self.job.path("reserve"), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, _RESERVE)
        finally:
            os.close(descriptor)


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _close(descriptor: int) -> None:
    # The listing's own descriptor is among the names, and closed by now.
    with contextlib.suppress(OSError):
        os.close(descriptor)
