"""The operation receipt, format 2: the result document of one operation.

Published atomically (0600). A failed receipt may be replaced by a later success of the same
request; a success is never downgraded; a file bound to another request is refused.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from coldsnap.artifact import canonical
from coldsnap.artifact.decode import Record, decode, parse
from coldsnap.artifact.drivers import DriverRef
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import read_regular, write_atomic
from coldsnap.artifact.rules import Digest, Id, Line, Prose, Seconds, Text
from coldsnap.artifact.timing import Timing

MAX_RECEIPT_BYTES = 16 << 20

Operation = Literal["capture", "publish", "publish-native", "restore", "sleep", "wake", "status"]
ReplaySemantics = Literal[
    "safe-repeat",
    "conflict-on-existing-output",
    "content-idempotent",
    "reconcile-replace",
    "convergent",
]
Instant = Annotated[
    str,
    Text(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z", 20, 30, "an instant in UTC, RFC 3339"),
]

REPLAY: Mapping[str, ReplaySemantics] = {
    "capture": "conflict-on-existing-output",
    "publish": "content-idempotent",
    "publish-native": "content-idempotent",
    "restore": "reconcile-replace",
    "sleep": "convergent",
    "wake": "convergent",
    "status": "convergent",
}
"""What running the same request again does."""


@dataclass(frozen=True)
class ReceiptResult(Record):
    artifact: Line | None = None
    """Digest of the manifest, or a reference with it."""
    output: Line | None = None
    prepared: Mapping[str, Any] | None = None
    """Report of a prepare-only restore."""


@dataclass(frozen=True)
class Receipt(Record):
    operation_id: Id
    operation: Operation
    state: Literal["succeeded", "failed"]
    request_sha256: Digest
    engine: Id
    snapshot_driver: DriverRef
    replay_semantics: ReplaySemantics
    started_at: Instant
    completed_at: Instant
    duration_seconds: Seconds
    """On a clock that no adjustment moves; need not equal the difference of the instants."""
    timing: Timing | None = None
    result: ReceiptResult | None = None
    error: Prose | None = None
    format: Literal[2] = 2
    kind: Literal["coldsnap-operation-receipt"] = "coldsnap-operation-receipt"

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.state == "failed" and not self.error:
            yield "/error", "must say why it failed"
        if self.state == "succeeded" and self.error is not None:
            yield "/error", "has no place in a success"
        if self.replay_semantics not in (REPLAY[self.operation], "safe-repeat"):
            reason = f"must be {REPLAY[self.operation]} for {self.operation}"
            yield "/replay_semantics", reason
        if self.replay_semantics == "safe-repeat" and not self._is_preparation:
            yield "/replay_semantics", "safe-repeat is for prepare-only restores"

    @property
    def _is_preparation(self) -> bool:
        prepared = self.result is not None and self.result.prepared is not None
        return self.operation == "restore" and (prepared or self.state == "failed")


def read_receipt(path: str | os.PathLike[str]) -> Receipt:
    """The checked receipt in a file.

    Raises:
        ColdSnapError: ``receipt.invalid``, ``file.missing``, ``file.not-regular``.
    """
    what = os.fspath(path)
    data = read_regular(path, MAX_RECEIPT_BYTES)
    value = parse(data, limit=MAX_RECEIPT_BYTES, what=what, code="receipt.invalid")
    return decode(Receipt, value, what=what, code="receipt.invalid")


def check_destination(path: str | os.PathLike[str], request_sha256: str) -> Receipt | None:
    """Before an operation starts: the receipt that is there already, if any.

    Raises:
        ColdSnapError: ``receipt.bound-elsewhere`` if it is of another request;
            ``receipt.invalid`` if it is no receipt.
    """
    try:
        existing = read_receipt(path)
    except ColdSnapError as error:
        if error.code == "file.missing":
            return None
        raise
    if existing.request_sha256 != request_sha256:
        raise ColdSnapError(
            "receipt.bound-elsewhere",
            f"{os.fspath(path)} is the receipt of another request",
            details=(f"there {existing.request_sha256}", f"now {request_sha256}"),
            remedy="choose another file, or remove it",
        )
    return existing


def publish_receipt(path: str | os.PathLike[str], receipt: Receipt) -> Receipt:
    """Write the receipt unless a success of the same request is there; returns what stands.

    Raises:
        ColdSnapError: as `check_destination`; ``receipt.invalid``; ``file.*``.
    """
    checked = decode(Receipt, receipt.to_json(), what="receipt", code="receipt.invalid")
    existing = check_destination(path, receipt.request_sha256)
    if existing is not None and existing.state == "succeeded" and receipt.state == "failed":
        return existing
    write_atomic(Path(path), canonical.dumps(checked.to_json()).encode("ascii") + b"\n")
    return checked


def instant(unix_ns: int) -> str:
    """RFC 3339 in UTC with nanoseconds: ``2026-11-30T12:00:00.000000001Z``."""
    seconds, rest = divmod(unix_ns, 10**9)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:09d}Z"
