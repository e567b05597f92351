"""CRIU driven by its RPC (``criu swrk``), run inside a unit, spoken to from outside.

The socket pair is made here and inherited through ``coldsnap-unit enter``, so no Python runs
inside the unit. Folders are passed as descriptors for the same reason: CRIU need not see our
paths. Between CRIU's phases it asks for leave (notifications): that is where files are copied
while every process stands still.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from coldsnap_runtime import criu_messages
from coldsnap_runtime.criu_log import failure
from coldsnap_runtime.process_table import open_pidfd, wait_pidfd
from coldsnap_runtime.unit_init import stop_init
from coldsnap_runtime.unit_record import ProcessRef

Notify = Callable[[str], None]
"""Called with the name of a phase (``post-dump``, ``post-restore``); raising stops CRIU."""

_GHOST_LIMIT = 512 << 20
_MAX_ANSWER = 1 << 20
_LOG_LEVEL = 3
_END_SECONDS = 10.0


@dataclass(frozen=True)
class CriuJob:
    """One dump or restore."""

    operation: str
    """``dump`` or ``restore``."""
    criu: tuple[str, ...]
    """The command, by its paths inside the unit."""
    unit_program: Path
    init: ProcessRef
    images: Path
    work: Path
    """Where the log goes."""
    root_pid: int = 0
    inherit: tuple[tuple[str, int], ...] = ()
    """(path inside the unit without its first slash, our descriptor) re-attached at a restore."""
    deadline: float = 600.0
    """Seconds; a job that takes longer is killed."""
    notify: Notify = field(default=lambda _phase: None)

    @property
    def log(self) -> Path:
        return self.work / f"{self.operation}.log"


def run(job: CriuJob) -> None:
    """Do the job and return when CRIU has ended.

    Raises:
        ColdSnapError: ``criu.dump-failed``, ``criu.restore-failed`` with the first error of
            CRIU's log, its cause and remedy; ``criu.timeout``.
        Exception: what `notify` raised, after CRIU has undone its work.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    descriptors = [os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in (job.images, job.work)]
    try:
        request = _request(job, descriptors[0])
        passed = (theirs.fileno(), *descriptors, *(fd for _, fd in job.inherit))
        process = _start(job, theirs.fileno(), descriptors[1], passed)
    finally:
        theirs.close()
        for descriptor in descriptors:
            os.close(descriptor)
    with ours:
        try:
            ours.send(request)
            _converse(job, _Channel(ours, process))
        except BaseException:
            ours.close()
            _break_off(job, process)
            raise
    process.wait(_END_SECONDS)


def wait_for_left_over(work: Path, seconds: float) -> None:
    """Wait for a CRIU that a killed verb left behind: it lets the processes go when it ends."""
    try:
        pid, start = (work / "criu.pid").read_text().split()
    except (OSError, ValueError):
        return
    descriptor = open_pidfd(int(pid), int(start))
    if descriptor is None:
        return
    try:
        wait_pidfd(descriptor, seconds)
    finally:
        os.close(descriptor)


def _start(
    job: CriuJob, channel: int, work: int, passed: tuple[int, ...]
) -> subprocess.Popen[bytes]:
    # A session of its own: when this verb is killed, CRIU must live to let the engine go on.
    process = subprocess.Popen(
        [
            os.fspath(job.unit_program),
            *("enter", str(job.init.pid), "--"),
            *(*job.criu, "swrk", str(channel)),
            # The RPC's own work_dir_fd is looked up below the pid of our end, unknown inside.
            *("--no-default-config", "-W", f"/proc/self/fd/{work}"),
        ],
        pass_fds=passed,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    reference = ProcessRef.of(process.pid)
    (job.work / "criu.pid").write_text(f"{reference.pid} {reference.start}\n")
    return process


class _Channel:
    """Our end of CRIU's socket; that CRIU is gone is noticed at its process.

    What it has forked for a restore holds the other end too, and outlives a CRIU that is killed.
    """

    def __init__(self, ours: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self._ours = ours
        self._process = process

    def send(self, data: bytes) -> None:
        self._ours.send(data)

    def receive(self, seconds: float) -> bytes:
        """The next message; empty if CRIU is gone. Raises TimeoutError."""
        poll = select.poll()
        poll.register(self._ours, select.POLLIN)
        ended = os.pidfd_open(self._process.pid)  # not reaped before `run` does it
        try:
            poll.register(ended, select.POLLIN)
            if not poll.poll(max(0.001, seconds) * 1000):
                raise TimeoutError
        finally:
            os.close(ended)
        try:
            return self._ours.recv(_MAX_ANSWER, socket.MSG_DONTWAIT)
        except (BlockingIOError, ConnectionError):
            return b""


def _converse(job: CriuJob, channel: _Channel) -> None:
    deadline = time.monotonic() + job.deadline
    refusal: BaseException | None = None
    while True:
        answer = _understood(job, _receive(job, channel, deadline))
        if answer.kind != criu_messages.NOTIFY:
            break
        is_granted = True
        try:
            job.notify(answer.script)
        except Exception as error:  # noqa: BLE001  (raised below, once CRIU has undone its work)
            refusal, is_granted = error, False
        channel.send(criu_messages.leave(is_granted=is_granted))
    if refusal is not None:
        raise refusal
    if not answer.success:
        raise failure(job.operation, job.log, answer.message)


def _understood(job: CriuJob, data: bytes) -> criu_messages.Answer:
    try:
        return criu_messages.read_answer(data)
    except ValueError as error:
        raise failure(job.operation, job.log, f"CRIU's answer cannot be read: {error}") from None


def _receive(job: CriuJob, channel: _Channel, deadline: float) -> bytes:
    try:
        data = channel.receive(deadline - time.monotonic())
    except TimeoutError:
        raise failure(job.operation, job.log, timeout=job.deadline) from None
    if not data:
        raise failure(job.operation, job.log, has_died=True)
    return data


def _break_off(job: CriuJob, process: subprocess.Popen[bytes]) -> None:
    """End CRIU. A dump lets the processes go; what a restore has made dies with its PID 1."""
    if job.operation == "restore":
        stop_init(job.init, 0.0)
    for number in (None, signal.SIGTERM, signal.SIGQUIT):  # QUIT makes `enter` kill the command
        if number is not None:
            process.send_signal(number)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        return
    process.kill()
    process.wait()


def _request(job: CriuJob, images: int) -> bytes:
    is_dump = job.operation == "dump"
    options = criu_messages.Options(
        images_dir=f"/proc/self/fd/{images}",
        log_file=job.log.name,
        log_level=_LOG_LEVEL,
        ghost_limit=_GHOST_LIMIT,
        pid=job.root_pid if is_dump else 0,
        leave_running=is_dump,
        inherit=job.inherit,
    )
    kind = criu_messages.DUMP if is_dump else criu_messages.RESTORE
    return criu_messages.request(kind, options)
