"""Processes by what the kernel says of them, safe against reuse of their numbers.

A process is identified by (pid, start time in clock ticks since boot): the pair is never used
twice within one boot.
"""

from __future__ import annotations

import os
import select
import signal
import time

_STATE, _SESSION, _START = 0, 3, 19
"""Positions in /proc/PID/stat after the closing parenthesis of the command."""


class ProcessStat:
    __slots__ = ("pid", "session", "start", "state")

    def __init__(self, pid: int, state: str, session: int, start: int) -> None:
        self.pid = pid
        self.state = state
        self.session = session
        self.start = start

    @property
    def is_alive(self) -> bool:
        """False for zombies: they run nothing, and not every init reaps them."""
        return self.state not in "ZXx"


def stat(pid: int) -> ProcessStat | None:
    """None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return ProcessStat(pid, fields[_STATE].decode(), int(fields[_SESSION]), int(fields[_START]))
    except (OSError, IndexError, ValueError):
        return None


def is_running(pid: int, start: int) -> bool:
    """Whether exactly that process still runs."""
    found = stat(pid)
    return found is not None and found.start == start and found.is_alive


def open_pidfd(pid: int, start: int) -> int | None:
    """A pidfd of exactly that process, or None if it is gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return None
    # Checked after opening: the number cannot be reused while the pidfd names its process.
    if is_running(pid, start):
        return descriptor
    os.close(descriptor)
    return None


def wait_pidfd(descriptor: int, seconds: float) -> bool:
    """True once the process has ended."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1000))


def session_members(session: int, start: int) -> list[ProcessStat]:
    """Live processes of the session whose leader had pid `session` and began at `start`.

    The kernel does not reuse a number that still names a session, so members that are not older
    than the leader are its own.
    """
    found = (stat(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [p for p in found if p and p.session == session and p.start >= start and p.is_alive]


def kill_session(session: int, start: int, seconds: float = 10.0) -> list[int]:
    """KILL every member until none is left; returns the pids killed.

    Raises:
        TimeoutError: some could not be killed within `seconds` (stuck in the kernel).
    """
    killed: set[int] = set()
    deadline = time.monotonic() + seconds
    while members := session_members(session, start):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {[p.pid for p in members]} cannot be killed")
        for process in members:
            kill_exact(process.pid, process.start, signal.SIGKILL)
            killed.add(process.pid)
        time.sleep(0.005)
    return sorted(killed)


def kill_exact(pid: int, start: int, number: signal.Signals) -> bool:
    """Send a signal to exactly that process; False if it is gone."""
    descriptor = open_pidfd(pid, start)
    if descriptor is None:
        return False
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True
