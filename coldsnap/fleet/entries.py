"""A host of the inventory with everything resolved: how to reach it and its variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

ConnectorName: TypeAlias = Literal["local", "ssh", "docker", "fake"]

CONNECT_SECONDS = 5.0


@dataclass(frozen=True)
class HostEntry:
    name: str
    connector: ConnectorName
    data: Mapping[str, Any] = field(default_factory=dict)
    """pyinfra's host data: ``ssh_hostname``, ``ssh_key`` ..., ``docker_identifier``."""
    vars: Mapping[str, Any] = field(default_factory=dict)
    """Variables of the host over those of its groups over those of all, with the defaults."""
    connect_timeout: float = CONNECT_SECONDS
    fake: FakeAnswers | None = None

    @property
    def has_sudo(self) -> bool:
        return bool(self.vars.get("sudo"))

    @property
    def sudo_user(self) -> str | None:
        user = self.vars.get("sudo_user")
        return str(user) if user else None

    def described(self) -> dict[str, Any]:
        """As the child wants it."""
        return {
            "name": self.name,
            "connector": self.connector,
            "data": dict(self.data),
            "sudo": self.has_sudo,
            "sudo_user": self.sudo_user,
            "connect_timeout": self.connect_timeout,
        }


@dataclass(frozen=True)
class FakeAnswer:
    """The answer to a fact whose arguments contain `args` (all of them, if it is empty)."""

    fact: str
    value: Any
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FakeAnswers:
    answers: tuple[FakeAnswer, ...] = ()
    """The first that fits is taken."""
    results: Mapping[str, Any] = field(default_factory=dict)
    """Operation name -> what its verb returns."""
    unreachable: str = ""
    """A reason makes the host unreachable."""


@dataclass(frozen=True)
class Inventory:
    """All hosts and groups, in the order of the file."""

    path: str
    hosts: Mapping[str, HostEntry]
    groups: Mapping[str, tuple[str, ...]]
    """Group -> host names in inventory order; without ``all``."""
