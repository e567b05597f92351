"""Commands on this machine: posix_spawn in a session of their own.

gevent's Popen forks, which costs 10 ms in a process of this size; posix_spawn costs 2.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import gevent
from gevent.event import AsyncResult
from gevent.monkey import get_original
from gevent.os import make_nonblocking, nb_read, nb_write

from coldsnap.fleet.child.output import Sink
from coldsnap.fleet.child.shells import DRAIN_SECONDS, KILL_GRACE, Command, discard, kill_script

_CHUNK = 1 << 16
# gevent's close waits for the next turn of its loop, which a reader that waits for the end of its
# input would never let come.
_close: Callable[[int], None] = get_original("os", "close")


class LocalShell:
    """Runs commands beside the child process, with its environment."""

    def run(self, command: Command) -> int:
        process = Process(command)
        try:
            return process.finish()
        except BaseException:
            self._kill(process.pid, command.wrap)
            raise
        finally:
            process.close()

    def _kill(self, group: int, wrap: Callable[[str], str]) -> None:
        """In a greenlet of its own: a second interrupt must not stop the killing."""
        text = wrap(kill_script(group))
        quiet = Command(text, stdout=discard, stderr=discard)
        gevent.spawn(_run_quiet, quiet).join(KILL_GRACE + 3.0)


def _run_quiet(command: Command) -> None:
    process = Process(command)
    try:
        process.finish()
    finally:
        process.close()


class Process:
    """One ``sh -c`` with pipes, reaped by the event loop."""

    def __init__(self, command: Command) -> None:
        self._loop = gevent.get_hub().loop
        self._loop.install_sigchld()
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        in_read, in_write = os.pipe() if command.stdin else (_null(), -1)
        self._open = {out_read, err_read, in_write} - {-1}
        self._greenlets: list[gevent.Greenlet[..., Any]] = []
        self._exit: AsyncResult[int] = AsyncResult()
        try:
            self._spawn(command.text, (in_read, out_write, err_write))
        finally:
            for descriptor in (in_read, out_write, err_write):
                _close(descriptor)
        self._start(_copy, out_read, command.stdout)
        self._start(_copy, err_read, command.stderr)
        if command.stdin:
            self._start(self._feed, in_write, command.stdin)

    def _spawn(self, text: str, descriptors: tuple[int, int, int]) -> None:
        actions = [(os.POSIX_SPAWN_DUP2, theirs, n) for n, theirs in enumerate(descriptors)]
        self.pid = os.posix_spawn(
            "/bin/sh", ["sh", "-c", text], os.environ, file_actions=actions, setsid=True
        )
        # No switch to the loop lies between spawn and start, so the exit cannot be missed.
        self._watcher = self._loop.child(self.pid)
        self._watcher.start(lambda: self._exit.set(self._watcher.rstatus))

    def _start(self, function: Callable[..., None], *arguments: object) -> None:
        self._greenlets.append(gevent.spawn(function, *arguments))

    def finish(self) -> int:
        """The exit status, once the output has ended or nobody but a daemon holds it."""
        status = self._exit.get()
        gevent.joinall(self._greenlets, timeout=DRAIN_SECONDS)
        return os.waitstatus_to_exitcode(status or 0)

    def close(self) -> None:
        gevent.killall(self._greenlets)
        self._watcher.stop()
        self._watcher.close()
        for descriptor in self._open:
            _close(descriptor)

    def _feed(self, descriptor: int, data: bytes) -> None:
        make_nonblocking(descriptor)
        view = memoryview(data)
        try:
            while view:
                view = view[nb_write(descriptor, view[:_CHUNK]) :]
        except BrokenPipeError:
            pass  # the command ended without reading everything, as it may
        self._open.discard(descriptor)
        _close(descriptor)


def _null() -> int:
    return os.open(os.devnull, os.O_RDONLY)


def _copy(descriptor: int, sink: Sink) -> None:
    make_nonblocking(descriptor)
    while chunk := nb_read(descriptor, _CHUNK):
        sink(chunk)
