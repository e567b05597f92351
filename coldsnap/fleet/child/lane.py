"""A lane: what one request of one host uses, a pyinfra State and Host of its own.

pyinfra keeps much on these objects (the operation in progress, the order of operations, failed
hosts, clients cached by address); sharing them between requests fails in ways that were seen.
A fresh pair costs 0.1 ms, and the expensive part, the connection, is kept outside.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import gevent
from gevent.local import local
from pyinfra import context
from pyinfra.api import Config, Inventory, State
from pyinfra.api.host import Host

from coldsnap.fleet.child.output import Sink, Tail
from coldsnap.fleet.child.shells import Command, Shell

OUTPUT_LIMIT = 4 << 20
"""Bytes of one command's output that pyinfra gets to see (the last ones)."""
STDERR_LIMIT = 64 << 10


class _StateOfHost:
    """pyinfra's process-global state variable, made the one of the host in hand.

    The host variable is local to a greenlet, and pyinfra sets it also in the greenlets in which
    it runs Python callbacks, so the state can always be told from it.
    """

    def __init__(self) -> None:
        self._own = local()

    @property
    def module(self) -> Any:
        host = context.ctx_host.get()  # type: ignore[no-untyped-call]
        return getattr(self._own, "module", None) if host is None else host.state

    @module.setter
    def module(self, value: Any) -> None:
        self._own.module = value


class LaneLog(logging.Handler):
    """Gives what pyinfra logs to the lane in whose name it does so."""

    def emit(self, record: logging.LogRecord) -> None:
        host = context.ctx_host.get()  # type: ignore[no-untyped-call]
        lane = getattr(getattr(host, "connector", None), "lane", None)
        if lane is not None:
            lane.said.append(record.getMessage())


def isolate_state() -> None:
    """Make `pyinfra.context.state` local to each request; once per process."""
    context.ctx_state.context._container = _StateOfHost()  # noqa: SLF001


class OneHost(Inventory):
    """An inventory of one host, made without scanning entry points (20 ms)."""

    def __init__(self, name: str, data: dict[str, Any], connector: type[Any]) -> None:
        self._connector = connector
        super().__init__(([(name, data)], {}))  # type: ignore[no-untyped-call]

    def make_hosts_and_groups(self, names: Any, groups: Any) -> None:
        del groups
        self.hosts = {}
        for name, data in names:
            self.host_data[name] = data
            self.hosts[name] = Host(name, self, [], self._connector)


@dataclass
class Outcome:
    """How one command ended."""

    status: int | None = None
    """Exit status; None when it did not end by itself."""
    stdout: Tail = field(default_factory=lambda: Tail(OUTPUT_LIMIT))
    stderr: Tail = field(default_factory=lambda: Tail(STDERR_LIMIT))
    failure: Exception | None = None
    """Why it did not end by itself: time-out, connection lost."""


@dataclass
class Lane:
    state: State
    host: Host
    shell: Shell
    listeners: list[Sink] = field(default_factory=list)
    """Further sinks of standard output (event lines, the operation's tail)."""
    output_limit: int = OUTPUT_LIMIT
    said: deque[str] = field(default_factory=lambda: deque(maxlen=20))
    """What pyinfra logged: errors in Python callbacks are told nowhere else."""
    last: Outcome = field(default_factory=Outcome)
    """The last command; a failed one stays until the next runs."""

    def run(
        self,
        text: str,
        *,
        stdin: bytes,
        timeout: float | None,
        pty: bool,
        wrap: Callable[[str], str],
    ) -> Outcome:
        """Run shell text on the host.

        Raises:
            TimeoutError: after `timeout` seconds; the command's process group is dead then.
            ConnectionLostError: the connection broke.
        """
        self.last = outcome = Outcome(stdout=Tail(self.output_limit))

        def stdout(chunk: bytes) -> None:
            outcome.stdout(chunk)
            for listener in self.listeners:
                listener(chunk)

        command = Command(text, stdout, outcome.stderr, stdin=stdin, pty=pty, wrap=wrap)
        try:
            with gevent.Timeout(timeout, TimeoutError(f"no end within {timeout} s")):
                outcome.status = self.shell.run(command)
        except Exception as error:
            outcome.failure = error
            raise
        return outcome

    def forget(self) -> None:
        """Let go of outputs at once: pyinfra's objects refer to each other in circles."""
        self.last = Outcome()
        self.listeners.clear()
        self.state.ops.clear()
        self.state.op_meta.clear()

    @contextmanager
    def entered(self) -> Iterator[Lane]:
        """The context of pyinfra is this lane inside; its own `use` forgets to reset on errors."""
        context.ctx_state.set(self.state)  # type: ignore[no-untyped-call]
        context.ctx_config.set(self.state.config)  # type: ignore[no-untyped-call]
        context.ctx_host.set(self.host)  # type: ignore[no-untyped-call]
        try:
            yield self
        finally:
            context.ctx_host.reset()
            context.ctx_config.reset()
            context.ctx_state.reset()


def make_state(name: str, data: dict[str, Any], connector: type[Any], config: Config) -> State:
    """A State whose inventory is that one host."""
    # Checking for changes would run each operation's facts twice; the step has observed already.
    return State(OneHost(name, data, connector), config, check_for_changes=False)
