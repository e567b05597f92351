"""What runs a shell command on a target: a local process, an ssh channel, a docker exec.

Each returns the exit status, feeds bytes to sinks, and when it is interrupted (time-out, cancel)
kills the whole process group on the target before it lets the exception go on: pyinfra's own
connectors leave it running.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import gevent
from gevent.event import AsyncResult, Event

from coldsnap.fleet.child.output import Sink

MARK = b"coldsnap-group "
KILL_GRACE = 2.0
"""Seconds between TERM and KILL."""
_MARK_SECONDS = 2.0
"""How long an interrupted command may take to tell its group."""
DRAIN_SECONDS = 2.0
"""How long to wait for the end of the output after the exit: a daemon may hold the pipe."""


@dataclass(frozen=True)
class Group:
    """A process group on a target; the start time tells it from a later one of that number."""

    number: int
    start: int
    """Clock ticks after the boot at which its leader started."""


class ConnectionLostError(Exception):
    """The connection broke while a command ran; its outcome is unknown.

    `group` is the command's process group, if it is known: it may still run there.
    """

    def __init__(self, reason: str, group: Group | None = None) -> None:
        super().__init__(reason)
        self.group = group


def as_is(command: str) -> str:
    return command


@dataclass(frozen=True)
class Command:
    """One command line for ``sh`` on the target."""

    text: str
    stdout: Sink
    stderr: Sink
    stdin: bytes = b""
    pty: bool = False
    wrap: Callable[[str], str] = field(default=as_is)
    """Makes a shell text run as the same user (sudo ...), for killing the command."""


class Shell(Protocol):
    def run(self, command: Command) -> int:
        """Run to the end and return the exit status (negative: killed by that signal).

        Raises:
            ConnectionLostError: the connection broke before the exit status came.
        """


def kill_script(group: int) -> str:
    """Shell text that ends a process group: TERM, a grace, then KILL.

    Written as ``kill -s KILL -- -N`` because dash's built-in does not know ``kill -KILL -- -N``.
    """
    rounds = int(KILL_GRACE * 10)
    return (
        f"kill -s TERM -- -{group} 2>/dev/null || exit 0; i=0; "
        f"while [ $i -lt {rounds} ]; do kill -s 0 -- -{group} 2>/dev/null || exit 0; "
        "sleep 0.1; i=$((i+1)); done; "
        f"kill -s KILL -- -{group} 2>/dev/null; exit 0"
    )


def kill_same_script(group: Group) -> str:
    """As `kill_script`, if the leader is the process that it was: the host may have rebooted."""
    return (
        f"read -r s 2>/dev/null </proc/{group.number}/stat || exit 0; set -- $s; "
        f'[ "${{22}}" = {group.start} ] || exit 0; {kill_script(group.number)}'
    )


def marked(text: str) -> str:
    """`text` under a shell that first tells its process group on standard error.

    sshd and docker give each command a session of its own, so that the group is the command's
    alone; it is told in band, because another round trip or a file would cost more.
    """
    tell = f'read -r s </proc/$$/stat; set -- $s; echo "{MARK.decode()}$5 ${{22}}" >&2; set --'
    return f"exec sh -c {shlex.quote(f'{tell}; {text}')}"


class GroupMark:
    """A standard-error sink that takes the group line of `marked` off the stream."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._head: bytes | None = b""
        self.group: Group | None = None
        self.known = Event()

    def __call__(self, chunk: bytes) -> None:
        if self._head is None:
            self._sink(chunk)
            return
        self._head += chunk
        line, newline, rest = self._head.partition(b"\n")
        if not newline and self._head[: len(MARK)] == MARK[: len(self._head)]:
            return
        words = line[len(MARK) :].split() if line.startswith(MARK) else []
        if len(words) == 2 and all(word.isdigit() for word in words):  # noqa: PLR2004
            self.group = Group(int(words[0]), int(words[1]))
            self.known.set()
        else:
            rest = self._head
        self._head = None
        if rest:
            self._sink(rest)

    def close(self) -> None:
        """The stream ended: what was held back belongs to it."""
        if self._head:
            self._sink(self._head)
        self._head = None


def run_guarded(work: Callable[[], int], mark: GroupMark, kill: Callable[[int], None]) -> int:
    """`work()` in a greenlet of its own; an interrupt of the caller kills the group first.

    The work goes on until the group is known, so that even a command that was interrupted
    while it started is found.
    """
    outcome: AsyncResult[int] = AsyncResult()
    greenlet = gevent.spawn(_into, outcome, work)
    try:
        return outcome.get() or 0
    except ConnectionLostError as error:
        error.group = mark.group
        raise
    except BaseException:
        if not outcome.ready():
            gevent.spawn(_kill_known, mark, kill).join(_MARK_SECONDS + KILL_GRACE + 6.0)
        raise
    finally:
        greenlet.kill()


def run_killable(
    command: Command, run: Callable[[GroupMark], int], run_quiet: Callable[[str], None]
) -> int:
    """`run` with the command's standard error; `run_quiet` runs the text that kills its group."""
    stderr = GroupMark(command.stderr)
    return run_guarded(
        lambda: run(stderr), stderr, lambda group: run_quiet(command.wrap(kill_script(group)))
    )


def _into(outcome: AsyncResult[int], work: Callable[[], int]) -> None:
    try:
        outcome.set(work())
    except Exception as error:  # noqa: BLE001  # raised again where the outcome is read
        outcome.set_exception(error)


def _kill_known(mark: GroupMark, kill: Callable[[int], None]) -> None:
    if mark.known.wait(_MARK_SECONDS) and mark.group is not None:
        kill(mark.group.number)


def discard(_chunk: bytes) -> None:
    """A sink that keeps nothing."""
