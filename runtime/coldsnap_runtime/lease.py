"""The lease of a unit: which run may change it, until when.

Time is CLOCK_BOOTTIME of this host, so no wall-clock jump moves an expiry; a lease of another
boot has expired. Every look and every change happens under the flock of ``<unit>.lock``.
Beside it, ``<unit>.busy`` is held (flock) by the verb that changes the unit right now: the
kernel gives it back when that process dies, and no other run gets the unit before.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from coldsnap.artifact import files
from coldsnap.artifact.decode import Record, decode
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.rules import Between, Id, Line, Seconds, Text
from coldsnap_runtime.timing import boot_id, boottime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coldsnap_runtime.context import Context

RunId = Annotated[str, Text(r"[A-Za-z0-9][A-Za-z0-9._:+@-]*", 1, 200, "a run id")]
_UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MAX_FILE = 1 << 16
_BUSY_SECONDS = 5.0
"""How long a verb waits for another one on the same unit."""


@dataclass(frozen=True)
class LeaseRequest(Record):
    unit: Id
    run: RunId
    ttl: Annotated[float, Between(1.0, 86400.0)] = 120.0
    """Seconds."""
    holder: Line = ""
    """Who asks (user@host), shown to whom is refused."""


@dataclass(frozen=True)
class ShowRequest(Record):
    unit: Id


@dataclass(frozen=True)
class Lease(Record):
    """The file ``leases/<unit>.json``."""

    format: Literal[1]
    machine_id: Line
    unit: Id
    run: RunId
    boot_id: Line
    expires_boottime: Seconds
    holder: Line

    @property
    def seconds_left(self) -> float:
        """0 when expired, or of another boot."""
        if self.boot_id != boot_id():
            return 0.0
        return max(0.0, self.expires_boottime - boottime())


def acquire(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """Take the unit, or prolong the own lease.

    Raises:
        ColdSnapError: ``lease.held`` (by another run, or by its verb that still works).
    """
    request = decode(LeaseRequest, value, what="lease.acquire", code="request.invalid")
    with _locked(context.state_dir, request.unit):
        found = _read(context.state_dir, request.unit)
        if found is not None and found.run != request.run:
            if found.seconds_left > 0:
                raise _held(found)
            _refuse_busy(context.state_dir, found)
        return _answer(_write(context.state_dir, request))


def renew(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """Prolong the own lease, expired or not, as long as nobody else took the unit.

    Raises:
        ColdSnapError: ``lease.lost``.
    """
    request = decode(LeaseRequest, value, what="lease.renew", code="request.invalid")
    with _locked(context.state_dir, request.unit):
        found = _read(context.state_dir, request.unit)
        if found is None or found.run != request.run or found.boot_id != boot_id():
            raise _lost(request.unit, request.run, found)
        return _answer(_write(context.state_dir, request))


def release(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """Give the unit back; another run's lease is left alone."""
    request = decode(LeaseRequest, value, what="lease.release", code="request.invalid")
    with _locked(context.state_dir, request.unit):
        found = _read(context.state_dir, request.unit)
        is_mine = found is not None and found.run == request.run
        if is_mine:
            os.unlink(_path(context.state_dir, request.unit, "json"))
        return {"unit": request.unit, "released": is_mine}


def show(value: dict[str, Any], context: Context) -> dict[str, Any]:
    request = decode(ShowRequest, value, what="lease.show", code="request.invalid")
    found = _read(context.state_dir, request.unit)
    return {"unit": request.unit, "lease": _answer(found) if found else None}


@contextlib.contextmanager
def held(state_dir: str, unit: str, run: str) -> Iterator[None]:
    """Around a verb that changes `unit`: no other run's lease, no other verb at the same time.

    Raises:
        ColdSnapError: ``lease.lost``, ``lease.busy``.
    """
    descriptor = _wait_busy(state_dir, unit, run)
    try:
        yield
    finally:
        os.close(descriptor)


def _wait_busy(state_dir: str, unit: str, run: str) -> int:
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        with _locked(state_dir, unit):
            found = _read(state_dir, unit)
            if found is not None and found.run != run and found.seconds_left > 0:
                raise _lost(unit, run, found)
            descriptor = _take_busy(state_dir, unit)
        if descriptor is not None:
            return descriptor
        if time.monotonic() > deadline:
            raise ColdSnapError(
                "lease.busy",
                f"another operation changes unit {unit} at this moment",
                remedy="wait for it (`job list` on the host shows it), then retry",
            )
        time.sleep(0.02)


@contextlib.contextmanager
def exclusive(state_dir: str, unit: str) -> Iterator[bool]:
    """The busy lock without a lease, for the unit's watchdog; yields whether it was free."""
    with _locked(state_dir, unit):
        descriptor = _take_busy(state_dir, unit)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _take_busy(state_dir: str, unit: str) -> int | None:
    descriptor = _open(_path(state_dir, unit, "busy"))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _refuse_busy(state_dir: str, found: Lease) -> None:
    descriptor = _take_busy(state_dir, found.unit)
    if descriptor is None:
        raise _held(found)
    os.close(descriptor)


@contextlib.contextmanager
def _locked(state_dir: str, unit: str) -> Iterator[None]:
    if not _UNIT.fullmatch(unit):
        raise ColdSnapError("request.invalid", f"{unit[:80]!r} is not a unit id")
    folder = os.path.join(state_dir, "leases")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise files.file_error(error, folder) from error
    descriptor = _open(_path(state_dir, unit, "lock"))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _open(path: str) -> int:
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(path, flags, 0o600)
    except OSError as error:
        raise files.file_error(error, path) from error


def _path(state_dir: str, unit: str, kind: str) -> str:
    return os.path.join(state_dir, "leases", f"{unit}.{kind}")


def _read(state_dir: str, unit: str) -> Lease | None:
    """None if there is none.

    A damaged file counts as none: a verb at work is protected by the busy lock.
    """
    try:
        data = files.read_regular(_path(state_dir, unit, "json"), _MAX_FILE)
        return decode(Lease, json.loads(data), what="lease")
    except ColdSnapError as error:
        if error.code in ("file.missing", "file.too-large", "artifact.invalid"):
            return None
        raise
    except ValueError:
        return None


def _write(state_dir: str, request: LeaseRequest) -> Lease:
    lease = Lease(
        format=1,
        machine_id=_machine_id(),
        unit=request.unit,
        run=request.run,
        boot_id=boot_id(),
        expires_boottime=round(boottime() + request.ttl, 3),
        holder=request.holder,
    )
    data = json.dumps(lease.to_json()).encode()
    # No lease outlives the boot that it names, so neither does it have to outlive a power cut.
    files.write_atomic(_path(state_dir, request.unit, "json"), data, sync="none")
    return lease


def _machine_id() -> str:
    """Shown to whom is refused; the lease itself lies on the machine that it is about."""
    for path in ("/etc/machine-id", "/sys/class/dmi/id/product_uuid"):
        with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as file:
            if found := file.read(64).strip().lower():
                return found
    return ""


def _answer(lease: Lease) -> dict[str, Any]:
    return {**lease.to_json(), "seconds_left": round(lease.seconds_left, 3)}


def _held(lease: Lease) -> ColdSnapError:
    who = f" of {lease.holder}" if lease.holder else ""
    left = lease.seconds_left
    state = f"{left:.0f} s left" if left > 0 else "its operation still works on the unit"
    return ColdSnapError(
        "lease.held",
        f"unit {lease.unit} is held by run {lease.run}{who} ({state})",
        details=(f"machine {lease.machine_id}", f"run {lease.run}", f"seconds left {left:.0f}"),
        remedy=f"wait for run {lease.run} to end; if it is yours and was interrupted: "
        f"coldsnap plan resume {lease.run}, or plan rollback {lease.run}; without either its lease "
        "expires by itself",
    )


def _lost(unit: str, run: str, found: Lease | None) -> ColdSnapError:
    if found is None:
        cause = "no lease is recorded"
    elif found.run == run:
        cause = "the host was started again since"
    else:
        cause = f"run {found.run} holds it now ({found.seconds_left:.0f} s left)"
    return ColdSnapError(
        "lease.lost",
        f"run {run} does not hold the lease of unit {unit} any more",
        cause=cause,
        remedy="look at the unit's state, then resume the run: it takes the lease again",
    )
