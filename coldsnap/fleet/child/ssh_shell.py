"""Commands over an open paramiko transport."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import gevent
from paramiko import Channel, SSHException, Transport

from coldsnap.fleet.child.output import Sink
from coldsnap.fleet.child.shells import (
    DRAIN_SECONDS,
    KILL_GRACE,
    Command,
    ConnectionLostError,
    GroupMark,
    marked,
    run_killable,
)

_CHUNK = 1 << 16
_OPEN_SECONDS = 10.0
NO_STATUS = -1
"""paramiko's answer when no exit status came: killed by a signal, or the connection broke."""
KEEPALIVE_SECONDS = 15
UNACKED_MILLISECONDS = 30_000
"""The kernel drops a connection whose bytes stay unacknowledged this long (a dead network)."""


def guard_transport(transport: Transport) -> None:
    """Make a dead peer show within half a minute instead of a quarter of an hour."""
    transport.set_keepalive(KEEPALIVE_SECONDS)
    sock = transport.sock
    if isinstance(sock, socket.socket):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKED_MILLISECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class SshShell:
    """Runs each command in a channel of its own."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @property
    def is_alive(self) -> bool:
        return bool(self._transport.is_active())

    def run(self, command: Command) -> int:
        return run_killable(command, lambda stderr: self._run(command, stderr), self._run_quiet)

    def _run(self, command: Command, stderr: GroupMark) -> int:
        greenlets: list[gevent.Greenlet[..., Any]] = []
        channel = None
        try:
            channel = self._transport.open_session(timeout=_OPEN_SECONDS)
            if command.pty:
                channel.get_pty()
            channel.exec_command(marked(command.text))
            greenlets.append(gevent.spawn(_copy, channel.recv, command.stdout))
            greenlets.append(gevent.spawn(_copy, channel.recv_stderr, stderr))
            greenlets.append(gevent.spawn(_feed, channel, command.stdin))
            return self._finish(channel, greenlets)
        except (SSHException, EOFError, OSError) as error:
            raise ConnectionLostError(str(error) or type(error).__name__) from error
        finally:
            gevent.killall(greenlets)
            stderr.close()
            if channel is not None:
                channel.close()

    def _finish(self, channel: Channel, greenlets: list[gevent.Greenlet[..., Any]]) -> int:
        status = int(channel.recv_exit_status())
        gevent.joinall(greenlets, timeout=DRAIN_SECONDS)
        if status == NO_STATUS and not self.is_alive:
            raise ConnectionLostError("the connection broke while the command ran")
        return status

    def _run_quiet(self, text: str) -> None:
        channel = self._transport.open_session(timeout=_OPEN_SECONDS)
        try:
            channel.exec_command(text)
            channel.status_event.wait(KILL_GRACE + 4.0)
        finally:
            channel.close()


def _copy(read: Callable[[int], bytes], sink: Sink) -> None:
    while chunk := read(_CHUNK):
        sink(chunk)


def _feed(channel: Channel, data: bytes) -> None:
    try:
        if data:
            channel.sendall(data)
        channel.shutdown_write()
    except OSError:
        pass  # the command ended without reading everything, as it may
