"""A job's folder ``jobs/ID/``: what is kept in it, and in which state the job is.

job.json (who runs it), events.jsonl (appended; a byte offset names a place in it), result.json
(its end), lock (flock of whoever starts, ends or removes it), log (stderr of the job).
Kept free of heavy imports: `job follow` is called many times a second.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from typing import Any

from coldsnap_runtime import process_table
from coldsnap_runtime.timing import boot_id

RUNNING, DONE, FAILED, DEAD, ABSENT = "running", "done", "failed", "dead", "absent"

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,250}")
_MAX_FILE = 32 << 20


class Job:
    """The folder of one job.

    Attributes:
        record: job.json as last loaded: verb, request_sha256, attempt, pid, start_ticks,
            boot_id, events_start.
    """

    def __init__(self, state_dir: str, identity: str) -> None:
        if not _ID.fullmatch(identity):
            raise ValueError(f"job id {identity[:80]!r} is not of the form {_ID.pattern}")
        self.identity = identity
        self.folder = os.path.join(state_dir, "jobs", identity)
        self.record: dict[str, Any] = {}

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def state(self) -> str:
        """Load the record and say how the job stands."""
        for _ in range(2):
            self.record = _read_object(self.path("job.json"))
            if not self.record:
                return ABSENT
            line = self.result_line()
            if line is not None:
                return DONE if line.get("ok") is True else FAILED
            if self.is_alive():
                return RUNNING
            # It may have ended between the two looks: a result then is there now.
        return DEAD

    def is_alive(self) -> bool:
        """Whether the process of the loaded record runs."""
        pid, start = self.process()
        return pid > 0 and process_table.is_running(pid, start)

    def process(self) -> tuple[int, int]:
        """(pid, start ticks) of the loaded record; (0, 0) if it belongs to another boot."""
        if self.record.get("boot_id") != boot_id():
            return 0, 0
        return _integer(self.record, "pid"), _integer(self.record, "start_ticks")

    @property
    def attempt(self) -> int:
        return _integer(self.record, "attempt")

    @property
    def events_start(self) -> int:
        """Where the events of the present attempt begin."""
        return _integer(self.record, "events_start")

    def result_line(self) -> dict[str, Any] | None:
        """The stored last line of the present attempt."""
        stored = _read_object(self.path("result.json"))
        line = stored.get("line")
        if stored.get("attempt") != self.attempt or not isinstance(line, dict):
            return None
        return line

    def lock(self, *, wait: bool = True) -> int | None:
        """Take the job's lock; close the descriptor to give it back.

        Returns None if the folder is not there, or is held by another and `wait` is false.
        """
        while True:
            try:
                descriptor = os.open(
                    self.path("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
                )
            except FileNotFoundError:
                return None
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                os.close(descriptor)
                return None
            if self._is_current(descriptor):
                return descriptor
            os.close(descriptor)  # the folder was removed meanwhile

    def _is_current(self, descriptor: int) -> bool:
        try:
            there = os.stat(self.path("lock"))
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(descriptor))


def identities(state_dir: str) -> list[str]:
    """Ids of all jobs, sorted."""
    try:
        names = os.listdir(os.path.join(state_dir, "jobs"))
    except FileNotFoundError:
        return []
    return sorted(name for name in names if _ID.fullmatch(name))


def _read_object(path: str) -> dict[str, Any]:
    """A JSON object of ours; empty if missing or damaged."""
    try:
        with open(path, "rb") as file:
            value = json.loads(file.read(_MAX_FILE))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _integer(record: dict[str, Any], name: str) -> int:
    value = record.get(name, 0)
    return value if isinstance(value, int) else 0
