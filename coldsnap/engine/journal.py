"""The journal of one run: hash-chained JSON lines, each durable before the run goes on.

One record is one line: canonical JSON of ``{"kind", "seq", "time", "clock", "prev", "sha256",
...}``, where `sha256` is the digest of the record without that field and `prev` is the `sha256`
of the record before (of nothing: `GENESIS`). So any edit, reordering, insertion or deletion
breaks the chain. What a chain cannot show is a cut at its end: a finished run is sealed by
``run.closed``, and ``run.json`` names the digest of the last record (`RunFolder.cut`).

Why JSON lines and not SQLite: a record is an append and an fsync, nothing that is already
written is ever touched again (SQLite rewrites pages, and its WAL is a second file that has to
travel with the first); a crash can only tear the last line, which is recognised and cut off; the
file is read with less, grep and jq, copied while it grows, and verified with a loop of ten
lines in any language; and a run has thousands of records, not millions, and readers that want
all of them.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coldsnap.artifact import canonical, files
from coldsnap.artifact.errors import ColdSnapError

GENESIS = "sha256:" + "0" * 64
MAX_LINE = 16 << 20
"""Longest record in bytes; outputs and seen values are small by contract."""
MAX_FILE = 1 << 30
SEAL = "run.closed"
"""Kind of the record after which nothing may follow."""
_FRAME = {"kind", "seq", "time", "clock", "prev", "sha256"}
_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(frozen=True)
class Record:
    seq: int
    """From 1."""
    kind: str
    time: float
    """Unix seconds."""
    prev: str
    sha256: str
    body: Mapping[str, Any]
    """The fields of that kind."""
    clock: float = 0.0
    """Seconds on a clock that no adjustment moves (CLOCK_BOOTTIME of the controller)."""


@dataclass(frozen=True)
class Verification:
    """What `verify` found; the records up to the first fault are good."""

    records: tuple[Record, ...]
    good_bytes: int
    """Length of the intact prefix."""
    torn_bytes: int = 0
    """Bytes of a last line that a crash cut short; the run did not act on them."""
    fault: ColdSnapError | None = None
    """``journal.tampered``: something was edited, moved, added or removed."""

    @property
    def intact(self) -> bool:
        return self.fault is None and self.torn_bytes == 0

    @property
    def head(self) -> str:
        return self.records[-1].sha256 if self.records else GENESIS


class Journal:
    """Appends records; called from many threads, which share one fsync when they can."""

    def __init__(self, path: Path, descriptor: int, seq: int, head: str) -> None:
        self._path = path
        self._descriptor = descriptor
        self._seq = seq
        self._head = head
        self._synced = seq
        self._write_lock = threading.Lock()
        self._sync_lock = threading.Lock()

    @classmethod
    def create(cls, path: Path) -> Journal:
        """A new, empty journal that must not exist yet.

        Raises:
            ColdSnapError: ``file.disk-full``, ``file.read-only``, ``file.unwritable``.
        """
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            descriptor = os.open(path, flags, 0o600)
            files.fsync_dir(path.parent)
        except OSError as error:
            raise files.file_error(error, path) from error
        return cls(path, descriptor, 0, GENESIS)

    @classmethod
    def reopen(cls, path: Path) -> tuple[Journal, Verification]:
        """Go on with a journal after its process ended; a torn last line is cut off first.

        Raises:
            ColdSnapError: ``journal.tampered``; ``file.missing`` and others of `files`.
        """
        found = verify(path)
        if found.fault is not None:
            raise found.fault
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
            if found.torn_bytes:
                os.ftruncate(descriptor, found.good_bytes)
                os.fsync(descriptor)
        except OSError as error:
            raise files.file_error(error, path) from error
        journal = cls(path, descriptor, len(found.records), found.head)
        if found.torn_bytes:
            journal.append("journal.repaired", {"dropped_bytes": found.torn_bytes})
        return journal, found

    @property
    def head(self) -> str:
        """Digest of the last record."""
        return self._head

    def append(self, kind: str, body: Mapping[str, Any]) -> Record:
        """Write one record and return when it is on the disk.

        Raises:
            ColdSnapError: ``file.disk-full`` and others of `files`; ``canonical.invalid`` when
                the body is not JSON (nothing is written then); ``journal.record-too-large``.
        """
        with self._write_lock:
            record, line = self._frame(kind, body)
            self._write(line)
            self._seq, self._head = record.seq, record.sha256
        self._sync(record.seq)
        return record

    def close(self) -> None:
        with self._write_lock, self._sync_lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _frame(self, kind: str, body: Mapping[str, Any]) -> tuple[Record, bytes]:
        fields = {
            **body,
            "kind": kind,
            "seq": self._seq + 1,
            "time": round(time.time(), 6),
            "clock": round(time.clock_gettime(_CLOCK), 6),
            "prev": self._head,
        }
        # The digest is of the canonical text without the digest; splicing it in at its sorted
        # place would save one more serialisation and cost the reader's trust.
        fields["sha256"] = canonical.digest(fields)
        line = canonical.dumps(fields).encode("ascii") + b"\n"
        if len(line) > MAX_LINE:
            raise ColdSnapError(
                "journal.record-too-large",
                f"a {kind} record of {len(line)} bytes does not fit the journal ({MAX_LINE})",
            )
        record = _record(fields, dict(body))
        return record, line

    def _write(self, line: bytes) -> None:
        """All of `line` or nothing: a half-written record must not be followed by another."""
        start = os.fstat(self._descriptor).st_size if self._descriptor >= 0 else 0
        try:
            written = os.write(self._descriptor, line)
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
        except OSError as error:
            if self._descriptor >= 0:
                os.ftruncate(self._descriptor, start)
            raise files.file_error(error, self._path) from error

    def _sync(self, seq: int) -> None:
        with self._sync_lock:
            if self._synced >= seq:  # another thread's fsync took this record along
                return
            upto = self._seq
            try:
                os.fdatasync(self._descriptor)
            except OSError as error:
                raise files.file_error(error, self._path) from error
            self._synced = upto


def verify(path: Path) -> Verification:
    """Read a journal and check every record, byte for byte.

    Raises:
        ColdSnapError: ``file.missing``, ``file.not-regular``, ``file.unreadable``.
    """
    records: list[Record] = []
    head, offset = GENESIS, 0
    with files.open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > MAX_FILE:
            raise ColdSnapError("journal.too-large", f"{path} is larger than {MAX_FILE} bytes")
        while line := file.readline(MAX_LINE + 1):
            if not line.endswith(b"\n"):
                rest = len(line) + len(file.read())
                return _cut(path, records, offset, rest)
            record = _checked(line, len(records) + 1, head, sealed=sealed(records) is not None)
            if isinstance(record, str):
                fault = _tampered(path, len(records) + 1, record)
                return Verification(tuple(records), offset, fault=fault)
            records.append(record)
            head, offset = record.sha256, offset + len(line)
    return Verification(tuple(records), offset)


def _cut(path: Path, records: list[Record], offset: int, rest: int) -> Verification:
    """A last line without its end is a torn write, unless the run was sealed before it."""
    if sealed(records):
        fault = _tampered(path, len(records) + 1, "something follows the seal of the run")
        return Verification(tuple(records), offset, fault=fault)
    return Verification(tuple(records), offset, torn_bytes=rest)


def _checked(line: bytes, seq: int, head: str, *, sealed: bool) -> Record | str:
    """The record of a line, or what is wrong with it."""
    if sealed:
        return "something follows the seal of the run"
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return "it is not JSON"
    if not isinstance(fields, dict) or not fields.keys() >= _FRAME:
        return "a field is missing"
    body = {key: value for key, value in fields.items() if key != "sha256"}
    reason = ""
    if not _is_canonical(line, fields):
        reason = "its bytes are not those that were written"
    elif fields["sha256"] != canonical.digest(body):
        reason = "its digest does not match its content"
    elif fields["seq"] != seq or fields["prev"] != head:
        reason = "it does not follow the record before it"
    return reason or _record(fields, {key: body[key] for key in body if key not in _FRAME})


def _is_canonical(line: bytes, fields: Mapping[str, Any]) -> bool:
    try:
        return canonical.dumps(fields).encode("ascii") + b"\n" == line
    except ColdSnapError:
        return False


def _record(fields: Mapping[str, Any], body: Mapping[str, Any]) -> Record:
    return Record(
        int(fields["seq"]),
        str(fields["kind"]),
        float(fields["time"]),
        str(fields["prev"]),
        str(fields["sha256"]),
        body,
        float(fields["clock"]),
    )


def _tampered(path: Path, line: int, reason: str) -> ColdSnapError:
    return ColdSnapError(
        "journal.tampered",
        f"the journal was changed after it was written: line {line}: {reason}",
        where=str(path),
        details=(f"lines 1 to {line - 1} are intact",) if line > 1 else (),
        cause="the file was edited, or its disk is damaged",
        remedy="do not trust this run's record; look at the targets: coldsnap status",
    )


def sealed(records: Sequence[Record]) -> Record | None:
    """The record that closes the run, if it is closed."""
    return records[-1] if records and records[-1].kind == SEAL else None
