"""Payload validation: a file is hashed once, and not again while its stat says it is the same.

Record format 1 (``coldsnap-payload-validation``) lies beside the file or where the caller says. A
record is believed only if digest, size, name and the four facts device, inode, size, mtime all
match; anything else means a full hash, and a difference fails closed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Literal

from coldsnap.artifact import canonical
from coldsnap.artifact.decode import Record, decode, parse
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import (
    file_error,
    open_regular,
    read_regular,
    sha256_stream,
    write_atomic,
)
from coldsnap.artifact.rules import Bytes, Digest, Line, Seconds, Wide

if TYPE_CHECKING:
    from typing import BinaryIO

PROVIDER = "sha256-cache-v1"
SUFFIX = ".coldsnap-validation.json"
MAX_RECORD_BYTES = 1 << 20

Policy = Literal["record", "full"]
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Expected(Record):
    bytes: Bytes
    sha256: Digest


@dataclass(frozen=True)
class ContentIdentity(Record):
    """What changes when content does."""

    device: Wide
    inode: Wide
    size: Bytes
    mtime_ns: int


@dataclass(frozen=True)
class DiagnosticIdentity(Record):
    """For people; a hard link or chmod changes it and the content stays."""

    ctime_ns: int
    uid: Wide
    gid: Wide
    mode: Wide


@dataclass(frozen=True)
class ValidationRecord(Record):
    blob: Line
    """Base name of the file."""
    expected: Expected
    content_identity: ContentIdentity
    diagnostic_identity: DiagnosticIdentity
    content_evidence: Literal["full-sha256"]
    validated_unix_ns: Wide
    provider: Literal["sha256-cache-v1"] = "sha256-cache-v1"
    format: Literal[1] = 1
    kind: Literal["coldsnap-payload-validation"] = "coldsnap-payload-validation"


@dataclass(frozen=True)
class ValidationEvidence(Record):
    """How this admission came about."""

    record: Line
    content_evidence: Literal["cached-full-sha256", "full-sha256-this-operation"]
    reason: Literal["cached_validation", "revalidated_existing"]
    device: Wide
    inode: Wide
    size: Bytes
    mtime_ns: int
    ctime_ns: int
    uid: Wide
    gid: Wide
    mode: Wide
    bytes_hashed: Bytes
    seconds: Seconds
    provider: Literal["sha256-cache-v1"] = "sha256-cache-v1"


@dataclass(frozen=True)
class ValidationResult(Record):
    worker: Line
    path: Line
    bytes: Bytes
    sha256: Digest
    validation: ValidationEvidence
    decision: Literal["accept"] = "accept"
    format: Literal[1] = 1
    kind: Literal["coldsnap-payload-validation-result"] = "coldsnap-payload-validation-result"


def validate(
    path: str | os.PathLike[str],
    *,
    sha256: str,
    size: int,
    record: str | os.PathLike[str] | None = None,
    policy: Policy = "record",
    worker: str = "",
    progress: Progress | None = None,
) -> ValidationResult:
    """Accept a file that holds exactly the expected bytes, or fail.

    Args:
        path: regular file; a symbolic link is refused.
        sha256: expected digest.
        size: expected bytes; compared first.
        record: where its record lies, default beside it; written after a full hash where that
            is possible (a read-only store keeps none, and validates all the same).
        policy: ``full`` hashes even if a record would do.
        worker: kept in the result.
        progress: gets the bytes hashed so far.

    Raises:
        ColdSnapError: ``file.missing``, ``file.not-regular``, ``payload.size-differs``,
            ``payload.digest-differs``, ``payload.changed`` (while it was hashed).
    """
    started = time.monotonic()
    name = os.fspath(path)
    place = Path(record) if record is not None else Path(name + SUFFIX)
    with open_regular(path) as file:
        before = os.fstat(file.fileno())
        if before.st_size != size:
            message = f"{name} has {before.st_size} bytes, expected {size}"
            raise ColdSnapError("payload.size-differs", message)
        cached = policy == "record" and _is_recorded(place, Path(name).name, sha256, before)
        if not cached:
            _hash_open(file, before, name, sha256, progress)
            _keep(place, Path(name).name, sha256, before)
    evidence = ValidationEvidence(
        record=os.fspath(place),
        content_evidence="cached-full-sha256" if cached else "full-sha256-this-operation",
        reason="cached_validation" if cached else "revalidated_existing",
        **content_identity(before).to_json(),
        **_diagnostic(before).to_json(),
        bytes_hashed=0 if cached else size,
        seconds=time.monotonic() - started,
    )
    return ValidationResult(worker, name, size, sha256, evidence)


def is_recorded(
    path: str | os.PathLike[str], *, sha256: str, size: int, record: str | os.PathLike[str]
) -> bool:
    """Whether a valid record says that the file holds the expected bytes; nothing is hashed."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    if not S_ISREG(found.st_mode) or found.st_size != size:
        return False
    return _is_recorded(Path(record), Path(path).name, sha256, found)


def remember(record: str | os.PathLike[str], path: str | os.PathLike[str], sha256: str) -> None:
    """Write the record of a file that was just checked by other means, where that is possible."""
    _keep(Path(record), Path(path).name, sha256, os.lstat(path))


def write_record(record: str | os.PathLike[str], path: str | os.PathLike[str], sha256: str) -> None:
    """As `remember`, for whoever asked for the record itself.

    Raises:
        ColdSnapError: ``file.*``: it cannot be written.
    """
    _write(Path(record), Path(path).name, sha256, os.lstat(path))


def check_place(record: str | os.PathLike[str]) -> None:
    """See that no file but a record, whole or torn, would be replaced by one.

    Raises:
        ColdSnapError: ``payload.not-a-record``, ``file.not-regular``.
    """
    try:
        with open_regular(record) as file:
            data = file.read(MAX_RECORD_BYTES + 1)
    except ColdSnapError as error:
        if error.code == "file.missing":
            return
        raise
    kind: object = ValidationRecord.kind
    if len(data) <= MAX_RECORD_BYTES:
        with contextlib.suppress(ColdSnapError):
            found = parse(data, limit=MAX_RECORD_BYTES, what="record")
            kind = found.get("kind") if isinstance(found, dict) else None
    if kind != ValidationRecord.kind or data[:1] not in (b"", b"{") or len(data) > MAX_RECORD_BYTES:
        raise ColdSnapError(
            "payload.not-a-record",
            f"{os.fspath(record)} holds something that is no validation record; it is left alone",
            remedy="name another file for the record",
        )


def content_identity(stat: os.stat_result) -> ContentIdentity:
    return ContentIdentity(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)


def _diagnostic(stat: os.stat_result) -> DiagnosticIdentity:
    return DiagnosticIdentity(stat.st_ctime_ns, stat.st_uid, stat.st_gid, stat.st_mode)


def hash_unchanged(
    file: BinaryIO, name: str, progress: Progress | None = None
) -> tuple[str, ContentIdentity]:
    """Digest of an open file and the identity it kept from first to last byte.

    Raises:
        ColdSnapError: ``payload.changed``.
    """
    before = content_identity(os.fstat(file.fileno()))
    # A file that somebody appends to all the time must not keep us for ever.
    found = sha256_stream(file, progress, before.size)
    if content_identity(os.fstat(file.fileno())) != before:
        raise ColdSnapError("payload.changed", f"{name} changed while it was hashed")
    return found, before


def _hash_open(
    file: BinaryIO, before: os.stat_result, name: str, sha256: str, progress: Progress | None
) -> None:
    found, identity = hash_unchanged(file, name, progress)
    if identity != content_identity(before):
        raise ColdSnapError("payload.changed", f"{name} changed while it was hashed")
    if found != sha256:
        raise ColdSnapError(
            "payload.digest-differs",
            f"{name} is not what its digest says",
            details=(f"expected {sha256}", f"found {found} (same size, {before.st_size} bytes)"),
        )


def _is_recorded(place: Path, blob: str, sha256: str, stat: os.stat_result) -> bool:
    try:
        data = read_regular(place, MAX_RECORD_BYTES)
        record = decode(
            ValidationRecord, parse(data, limit=MAX_RECORD_BYTES, what="record"), what="record"
        )
    except ColdSnapError:
        return False  # no record, or not one of ours: hash
    return (
        record.blob == blob
        and record.expected == Expected(stat.st_size, sha256)
        and record.content_identity == content_identity(stat)
    )


def _keep(place: Path, blob: str, sha256: str, stat: os.stat_result) -> None:
    # A full or read-only disk costs the next reader a hash, nothing else.
    with contextlib.suppress(ColdSnapError):
        _write(place, blob, sha256, stat)


def _write(place: Path, blob: str, sha256: str, stat: os.stat_result) -> None:
    record = ValidationRecord(
        blob=blob,
        expected=Expected(stat.st_size, sha256),
        content_identity=content_identity(stat),
        diagnostic_identity=_diagnostic(stat),
        content_evidence="full-sha256",
        validated_unix_ns=time.time_ns(),
    )
    try:
        place.parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise file_error(error, place) from error
    write_atomic(place, canonical.dumps(record.to_json()).encode("ascii"))
