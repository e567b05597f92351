"""The hosts of the child: connections that are kept, and lanes on them."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import gevent
from gevent.lock import BoundedSemaphore, RLock
from pyinfra.api import Config

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet.child.connectors import Docker, Local, Ssh
from coldsnap.fleet.child.docker_shell import DockerShell
from coldsnap.fleet.child.failures import connect_error, docker_error
from coldsnap.fleet.child.lane import Lane, Outcome, make_state
from coldsnap.fleet.child.local_shell import LocalShell
from coldsnap.fleet.child.shells import Command, Shell
from coldsnap.fleet.child.ssh_shell import SshShell, guard_transport

SSH_SLOTS = 8
"""Commands at once on one ssh connection: sshd's default MaxSessions is 10, and two are kept
for killing."""
LOCAL_SLOTS = 32
_DOCKER_SECONDS = 15.0
_handshakes = BoundedSemaphore(64)
"""Key exchange is work for this one process: too many at once, and all come too late."""


@dataclass(frozen=True)
class Address:
    """A host as the parent describes it."""

    name: str
    connector: str
    """``local``, ``ssh`` or ``docker``"""
    data: dict[str, Any] = field(default_factory=dict)
    """pyinfra host data (``ssh_hostname`` ...)."""
    sudo: bool = False
    sudo_user: str | None = None
    connect_timeout: float = 5.0

    @property
    def label(self) -> str:
        """Where it is, for errors."""
        if self.connector == "ssh":
            user = f"{self.data['ssh_user']}@" if self.data.get("ssh_user") else ""
            port = self.data.get("ssh_port") or 22
            return f"{user}{self.data.get('ssh_hostname') or self.name}:{port}"
        if self.connector == "docker":
            return f"container {self.data['docker_identifier']}"
        return "this machine"


class Connection(Protocol):
    """An open way to a host, shared by up to `slots` commands."""

    shell: Shell
    slots: BoundedSemaphore
    connector: type[Any]

    @property
    def is_alive(self) -> bool: ...

    def attach(self, connector: Any) -> None:
        """Give a fresh pyinfra connector what it needs to use this connection."""

    def close(self) -> None: ...


class LocalConnection:
    connector = Local
    is_alive = True

    def __init__(self) -> None:
        self.shell: Shell = LocalShell()
        self.slots = BoundedSemaphore(LOCAL_SLOTS)

    def attach(self, connector: Any) -> None:
        pass

    def close(self) -> None:
        pass


class DockerConnection:
    connector = Docker

    def __init__(self, container: str) -> None:
        self.container = container
        self.shell: Shell = DockerShell(container)
        self.slots = BoundedSemaphore(LOCAL_SLOTS)
        self.is_alive = True

    def attach(self, connector: Any) -> None:
        connector.container_id = self.container
        connector.no_stop = True

    def close(self) -> None:
        self.is_alive = False


class SshConnection:
    connector = Ssh

    def __init__(self, client: Any) -> None:
        self.client = client
        transport = client.get_transport()
        guard_transport(transport)
        self.ssh = SshShell(transport)
        self.shell: Shell = self.ssh
        self.slots = BoundedSemaphore(SSH_SLOTS)

    @property
    def is_alive(self) -> bool:
        return self.ssh.is_alive

    def attach(self, connector: Any) -> None:
        connector.client = self.client

    def close(self) -> None:
        self.client.close()


class Target:
    """One host; safe for many greenlets."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._connections: list[Connection] = []
        self._lock = RLock()
        self._failure: ColdSnapError | None = None
        self._failed_at = 0.0

    @property
    def name(self) -> str:
        return self.address.name

    def connect(self) -> Connection:
        """A live connection with a free slot; opened if there is none.

        Raises:
            ColdSnapError: ``host.unreachable``, ``host.auth-failed``, ``host.key-unknown``,
                ``host.key-changed``.
        """
        asked = time.monotonic()
        with self._lock:
            if self._failure is not None and self._failed_at > asked:
                raise self._failure  # others that wait for the same attempt share its error
            for dead in [found for found in self._connections if not found.is_alive]:
                self._connections.remove(dead)
                dead.close()
            for connection in self._connections:
                if not connection.slots.locked():
                    return connection
            try:
                opened = self._open()
            except ColdSnapError as error:
                self._failure, self._failed_at = error, time.monotonic()
                raise
            self._connections.append(opened)
            return opened

    @contextmanager
    def lane(self) -> Iterator[Lane]:
        """A lane on a live connection, with pyinfra's context variables set to it."""
        connection = self.connect()
        with connection.slots:
            state = self._state(connection.connector)
            host = next(iter(state.inventory))
            lane = Lane(state, host, connection.shell)
            host.connector.lane = lane
            connection.attach(host.connector)
            host.connected = True
            state.activate_host(host)
            try:
                with lane.entered():
                    yield lane
            finally:
                lane.forget()
                if isinstance(host.connector, Ssh):
                    host.connector.disconnect()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def _state(self, connector: type[Any]) -> Any:
        address = self.address
        config = Config(CONNECT_TIMEOUT=address.connect_timeout)  # type: ignore[no-untyped-call]
        if address.sudo:
            config.SUDO = True
            config.SUDO_USER = address.sudo_user
        return make_state(address.name, dict(address.data), connector, config)

    def _open(self) -> Connection:
        if self.address.connector == "local":
            return LocalConnection()
        if self.address.connector == "docker":
            return self._open_docker()
        return self._open_ssh()

    def _open_ssh(self) -> Connection:
        state = self._state(Ssh)
        connector = next(iter(state.inventory)).connector
        try:
            with _handshakes:
                connector.connect()
        except Exception as error:
            raise connect_error(self.address, error) from error
        return SshConnection(connector.client)

    def _open_docker(self) -> Connection:
        container = str(self.address.data["docker_identifier"])
        outcome = Outcome()
        ask = shlex.join(
            ["docker", "container", "inspect", "-f", "{{.State.Running}}", "--", container]
        )
        status = None
        try:
            with gevent.Timeout(_DOCKER_SECONDS, TimeoutError()):
                status = LocalShell().run(Command(ask, outcome.stdout, outcome.stderr))
        except TimeoutError:
            outcome.stderr(b"dockerd does not answer")
        if status != 0 or outcome.stdout.text().strip() != "true":
            raise docker_error(self.address, outcome)
        return DockerConnection(container)


def unknown_target(name: str) -> ColdSnapError:
    return ColdSnapError("internal.unknown-target", f"the fleet's child knows no host {name!r}")
