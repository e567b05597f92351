"""Folders of runs: ``<project>/.coldsnap/runs/<id>/`` with journal, receipt and lock.

A run id sorts by the time it was made (a ULID: 48 bits of milliseconds, 80 random bits).
The lock is a `flock` on ``lock``: the kernel drops it when its process dies, so it also tells
a run that is being worked on from one that was killed.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from coldsnap.artifact import files
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.jsontext import parse
from coldsnap.engine.history import History, fold
from coldsnap.engine.journal import Record, verify

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ID = re.compile(f"[0-7][{_ALPHABET}]{{25}}")
LATEST = "latest"
_MAX_SUMMARY = 64 << 20


def new_id(now: float | None = None) -> str:
    """A fresh run id: 26 characters of Crockford's base 32."""
    milliseconds = int((time.time() if now is None else now) * 1000)
    value = milliseconds << 80 | secrets.randbits(80)
    return "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -5, -5))


@dataclass(frozen=True)
class RunFolder:
    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def receipt(self) -> Path:
        return self.path / "receipt.json"

    @property
    def summary(self) -> Path:
        """``run.json``: written at each end of a process that worked on the run."""
        return self.path / "run.json"

    def cut(self, records: Sequence[Record]) -> ColdSnapError | None:
        """``journal.cut`` when the record that ``run.json`` was written after is not there.

        A chain alone cannot show that its end is missing.
        """
        try:
            data = files.read_regular(self.summary, _MAX_SUMMARY)
            head = parse(data, limit=_MAX_SUMMARY, what=str(self.summary))["journal"]["head_sha256"]
        except (ColdSnapError, LookupError, TypeError):
            return None  # killed before it could be written; the chain has to do
        if any(record.sha256 == head for record in records):
            return None
        return ColdSnapError(
            "journal.cut",
            "records are missing at the end of the journal",
            where=str(self.journal),
            details=(f"run.json names the last record {head}",),
            cause="the file was edited, or its disk is damaged",
            remedy="do not trust this run's record; look at the targets: coldsnap status",
        )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run for this process.

        Raises:
            ColdSnapError: ``run.busy`` when another process works on it.
        """
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise self._busy(os.pread(descriptor, 32, 0)) from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(descriptor)

    @property
    def is_active(self) -> bool:
        """Whether a process works on it now."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def _busy(self, holder: bytes) -> ColdSnapError:
        pid = holder.decode("ascii", "replace").strip("\0") or "?"
        return ColdSnapError(
            "run.busy",
            f"run {self.id} is being worked on by process {pid}",
            remedy="wait for it, or stop it with Ctrl-C in its terminal",
        )


@dataclass(frozen=True)
class RunSummary:
    """One line of ``coldsnap runs list``; `fault` is set when the journal is not intact."""

    id: str
    history: History | None
    active: bool
    fault: ColdSnapError | None = None
    torn_bytes: int = 0

    @property
    def state(self) -> str:
        """``running``, ``interrupted`` (killed), ``damaged``, or what `History.state` says."""
        if self.active:
            return "running"
        if self.fault is not None:
            return "damaged"
        return (self.history.state if self.history else "") or "interrupted"


@dataclass(frozen=True)
class Runs:
    """All runs of a project."""

    project: Path
    """Folder that holds ``.coldsnap``."""

    @property
    def root(self) -> Path:
        return self.project / ".coldsnap" / "runs"

    def create(self, run_id: str | None = None) -> RunFolder:
        """A new run's folder, durable and pointed to by ``latest``.

        Raises:
            ColdSnapError: ``file.disk-full``, ``file.read-only``, ``file.unwritable``.
        """
        folder = RunFolder(self.root / (run_id or new_id()))
        try:
            folder.path.parent.mkdir(parents=True, exist_ok=True)
            folder.path.mkdir(mode=0o700)
            files.fsync_dir(folder.path.parent)
            self._point(folder)
        except OSError as error:
            raise files.file_error(error, folder.path) from error
        return folder

    def find(self, name: str) -> RunFolder:
        """The run of an id, of a prefix that only one id has, or ``latest``.

        Raises:
            ColdSnapError: ``run.unknown``, ``run.ambiguous``.
        """
        if name == LATEST:
            ids = self.ids()[-1:]
        else:
            ids = [run_id for run_id in self.ids() if run_id.startswith(name.upper())]
        if not ids or not name:
            raise ColdSnapError(
                "run.unknown",
                f"there is no run {name!r} in {self.root}",
                remedy="see them: coldsnap runs list",
            )
        if len(ids) > 1:
            raise ColdSnapError(
                "run.ambiguous",
                f"{len(ids)} runs begin with {name!r}",
                details=tuple(ids[-5:]),
                remedy="write more of its id",
            )
        return RunFolder(self.root / ids[0])

    def ids(self) -> list[str]:
        """Ids of all runs, oldest first."""
        if not self.root.is_dir():
            return []
        return sorted(entry.name for entry in self.root.iterdir() if _ID.fullmatch(entry.name))

    def summary(self, folder: RunFolder) -> RunSummary:
        """What the journal of a run says; a damaged one is reported, not raised."""
        try:
            found = verify(folder.journal)
        except ColdSnapError as unreadable:
            # A run that was killed before it had a journal did nothing.
            fault = None if unreadable.code == "file.missing" else unreadable
            return RunSummary(folder.id, None, folder.is_active, fault)
        history = fold(found.records) if found.records else None
        fault = found.fault or folder.cut(found.records)
        return RunSummary(folder.id, history, folder.is_active, fault, found.torn_bytes)

    def summaries(self) -> list[RunSummary]:
        """All runs, newest first."""
        return [self.summary(RunFolder(self.root / run_id)) for run_id in reversed(self.ids())]

    def _point(self, folder: RunFolder) -> None:
        link = self.root / f".{LATEST}.{folder.id}"
        link.symlink_to(folder.id)
        link.replace(self.root / LATEST)
