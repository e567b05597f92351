"""Making a unit's namespaces with their PID 1, and ending them.

Seen from inside, the host's file system with its own /tmp, /dev/shm, /proc and this below
/run/coldsnap: ``unit/`` (the generation's control folder), ``bin/``, ``inside/``, ``criu/`` and
``payload/`` (read-only). The paths are the same on every host and for every pack, because
processes that are restored remember them.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.process_table import kill_exact, open_pidfd, wait_pidfd
from coldsnap_runtime.unit_record import GenerationPaths, ProcessRef

INSIDE_ROOT = "/run/coldsnap"
INSIDE_CONTROL = f"{INSIDE_ROOT}/unit"
INSIDE_UNIT = f"{INSIDE_ROOT}/bin/coldsnap-unit"
INSIDE_PACKAGES = f"{INSIDE_ROOT}/inside"
INSIDE_CRIU = f"{INSIDE_ROOT}/criu"
INSIDE_PAYLOAD = f"{INSIDE_ROOT}/payload"
INSIDE_IMAGE = f"{INSIDE_ROOT}/image"
"""The page files of an image that is mapped (``image_mode: mmap``), read-only."""
INSIDE_LOG = f"{INSIDE_CONTROL}/engine.log"

ROOT_PID = 1000
"""High enough that what CRIU starts in a fresh PID namespace stays below it."""

PRIVATE_FOLDERS = ("/tmp", "/dev/shm", INSIDE_ROOT)  # noqa: S108  (the unit's own, not the host's)
INIT_NAME = "coldsnap-init"
_START_SECONDS = 30.0
_KILL_SECONDS = 20.0


@dataclass(frozen=True)
class UnitMount:
    kind: str
    """``tmpfs``, ``bind`` or ``bind-read-only``."""
    source: str
    """Path on the host; for a tmpfs its mount options."""
    target: str


@dataclass(frozen=True)
class InitSpec:
    """What PID 1 is told. `argv` empty: no root is started, CRIU will restore it."""

    network: str
    mounts: tuple[UnitMount, ...]
    last_pid: int
    """The next process inside gets this number + 1."""
    root_pid: int = ROOT_PID
    argv: tuple[str, ...] = ()
    env: dict[str, str] | None = None


def start_init(unit_program: Path, spec: InitSpec, paths: GenerationPaths) -> ProcessRef:
    """Start PID 1 (and the root below it) and return once both run.

    Raises:
        ColdSnapError: ``unit.start-failed`` with what could not be done; nothing is left.
    """
    reading, writing = os.pipe()
    status = os.open(paths.work / "status", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        process = subprocess.Popen(
            [os.fspath(unit_program), "start", *_options(spec, writing, status)],
            pass_fds=(writing, status),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=spec.env if spec.env is not None else {},
            start_new_session=True,
        )
        os.close(writing)
        writing = -1
        report = _read_report(reading)
        process.wait(_START_SECONDS)
    finally:
        for descriptor in (reading, writing, status):
            if descriptor >= 0:
                os.close(descriptor)
    return _reference(report)


def standard_mounts(paths: GenerationPaths, *, criu: Path, inside: Path) -> tuple[UnitMount, ...]:
    """What every unit has from the host, whatever makes its namespaces."""
    return (
        UnitMount("bind", os.fspath(paths.control), INSIDE_CONTROL),
        UnitMount("bind-read-only", os.fspath(paths.unit_program), INSIDE_UNIT),
        UnitMount("bind-read-only", os.fspath(inside), INSIDE_PACKAGES),
        UnitMount("bind-read-only", os.fspath(criu.resolve().parent), INSIDE_CRIU),
        UnitMount("bind", os.fspath(paths.tmp), "/tmp"),  # noqa: S108
    )


def in_own_folders(mounts: tuple[UnitMount, ...], shm: int) -> tuple[UnitMount, ...]:
    """`mounts` with the file systems in memory that they need: `shm` bytes of /dev/shm."""
    return (
        UnitMount("tmpfs", "size=4m,mode=755", INSIDE_ROOT),
        UnitMount("tmpfs", f"size={max(shm, 1 << 20)},mode=1777", "/dev/shm"),  # noqa: S108
        *mounts,
    )


def root_argv(argv: tuple[str, ...], *, cwd: str, deny_io_uring: bool) -> tuple[str, ...]:
    """The command line of the image's root, which starts `argv`."""
    filters = ("--deny-io-uring",) if deny_io_uring else ()
    return (INSIDE_UNIT, "supervise", "--log", INSIDE_LOG, "--cwd", cwd, *filters, "--", *argv)


def is_private(path: str, caches: tuple[str, ...] = ()) -> bool:
    """Whether a path inside the unit belongs to the unit alone (and so travels with it)."""
    return any(path == top or path.startswith(top + "/") for top in (*PRIVATE_FOLDERS, *caches))


def stop_init(init: ProcessRef, grace: float) -> bool:
    """TERM, then KILL after `grace` seconds; the PID namespace dies with its PID 1.

    Returns whether it ended within the grace.

    Raises:
        ColdSnapError: ``unit.unkillable``.
    """
    descriptor = open_pidfd(init.pid, init.start) if init.is_alive else None
    if descriptor is None:
        return True
    if not _is_ours(init.pid):
        os.close(descriptor)
        return True
    try:
        if grace > 0:
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
            if wait_pidfd(descriptor, grace):
                return True
        kill_exact(init.pid, init.start, signal.SIGKILL)
        if wait_pidfd(descriptor, _KILL_SECONDS):
            return False
    except ProcessLookupError:
        return True
    finally:
        os.close(descriptor)
    raise ColdSnapError(
        "unit.unkillable",
        f"process {init.pid} does not end within {_KILL_SECONDS:.0f} s of SIGKILL",
        cause="a process of the unit is stuck in the kernel (a dead network mount or device)",
        remedy="find it in state D with ps; only a reboot of the host may end it",
    )


def _is_ours(pid: int) -> bool:
    """Whether it is a unit's PID 1, not the verb that was about to start one."""
    try:
        return Path(f"/proc/{pid}/comm").read_text() == f"{INIT_NAME}\n"
    except OSError:
        return False


def _options(spec: InitSpec, report: int, status: int) -> list[str]:
    options = ["--report", str(report), "--status", str(status), "--network", spec.network]
    options += ["--root-pid", str(spec.root_pid), "--last-pid", str(spec.last_pid)]
    for mount in spec.mounts:
        options += [f"--{mount.kind}", mount.source, mount.target]
    return [*options, "--", *spec.argv] if spec.argv else options


def _read_report(descriptor: int) -> str:
    deadline = time.monotonic() + _START_SECONDS
    text = b""
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([descriptor], [], [], left)[0]:
            break
        block = os.read(descriptor, 4096)
        if not block:
            return text.decode("utf-8", "replace")
        text += block
    return text.decode("utf-8", "replace") + "error no answer in time\n"


def _reference(report: str) -> ProcessRef:
    lines = report.splitlines()
    pids = [int(line[5:]) for line in lines if line.startswith("init ")]
    errors = [line[6:] for line in lines if line.startswith("error ")]
    if pids and not errors and "ready" in lines:
        try:
            return ProcessRef.of(pids[0])
        except ProcessLookupError:
            errors = ["the root process ended at once"]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    reason = errors[0] if errors else report.strip()
    raise ColdSnapError(
        "unit.start-failed",
        f"the unit's namespaces could not be set up: {reason}",
        remedy=_remedy(reason),
    )


def _remedy(reason: str) -> str:
    """What helps against what the unit's PID 1 could not do."""
    if "No such file" in reason or "Not a directory" in reason:
        return (
            "a folder or program that the plan names is not on this host: look at model.path, "
            "mounts:, caches: and command: of the unit"
        )
    if "Operation not permitted" in reason or "Permission denied" in reason:
        return "it must run as root with all capabilities: coldsnap doctor tells what is missing"
    if "No space left" in reason or "Cannot allocate" in reason:
        return "free memory, or lower shm: of the unit"
    return "read the reason above; coldsnap doctor tells what this host lacks"
