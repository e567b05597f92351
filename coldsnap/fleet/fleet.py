"""The fleet: hosts of an inventory behind one child process."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Self, TypeAlias

from coldsnap.artifact import canonical
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet.cancels import Cancels
from coldsnap.fleet.entries import HostEntry, Inventory
from coldsnap.fleet.fake import FakeHost
from coldsnap.fleet.host import RemoteHost
from coldsnap.fleet.link import Link
from coldsnap.sdk.host import FactRequest, Host

AnyHost: TypeAlias = FakeHost | RemoteHost


class InventoryFleet:
    """Implements `coldsnap.engine.fleet.Fleet`. The child starts when a real host is needed."""

    def __init__(self, inventory: Inventory, link: Link | None = None) -> None:
        self.inventory = inventory
        self._cancels = Cancels()
        self.link = Link() if link is None else link
        self.link.describe(self._described())
        self._hosts = {name: self._make(entry) for name, entry in inventory.hosts.items()}
        self._sha256 = ""

    @property
    def path(self) -> str:
        return self.inventory.path

    @property
    def sha256(self) -> str:
        if not self._sha256:
            self._sha256 = canonical.digest(_identity(self.inventory))
        return self._sha256

    def select(self, selector: str) -> tuple[str, ...]:
        inventory = self.inventory
        if selector in inventory.hosts:
            return (selector,)
        if selector in inventory.groups:
            return inventory.groups[selector]
        if selector == "all":
            return tuple(inventory.hosts)
        raise self._unknown(selector)

    def host(self, name: str) -> Host:
        return self._host(name)

    def connect(self, names: Sequence[str]) -> Mapping[str, ColdSnapError]:
        return _at_once({name: self._host(name).begin_connect for name in names})

    def prefetch(
        self, requests: Mapping[str, Sequence[FactRequest]]
    ) -> Mapping[str, ColdSnapError]:
        return _at_once(
            {
                name: _prefetcher(self._host(name), asked)
                for name, asked in requests.items()
                if asked
            }
        )

    def forget(self, names: Sequence[str]) -> None:
        for name in names:
            self._host(name).forget()

    def cancel(self) -> None:
        self._cancels.cancel()

    def start(self) -> None:
        """Start the child ahead of its first use, if a host needs it; returns at once."""
        if any(entry.connector != "fake" for entry in self.inventory.hosts.values()):
            self.link.start()

    def close(self) -> None:
        self.link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _make(self, entry: HostEntry) -> AnyHost:
        if entry.connector == "fake":
            return FakeHost(entry)
        return RemoteHost(entry, self.link, self._cancels)

    def _host(self, name: str) -> AnyHost:
        try:
            return self._hosts[name]
        except KeyError:
            raise self._unknown(name) from None

    def _described(self) -> list[Mapping[str, object]]:
        entries = self.inventory.hosts.values()
        return [entry.described() for entry in entries if entry.connector != "fake"]

    def _unknown(self, selector: str) -> ColdSnapError:
        names = [*self.inventory.hosts, *self.inventory.groups, "all"]
        near = difflib.get_close_matches(selector, names, n=3)
        hint = "did you mean " + " or ".join(f'"{name}"' for name in near) + "?" if near else ""
        return ColdSnapError(
            "inventory.unknown-host",
            f'"{selector}" is no host and no group of {self.path}',
            details=(f"hosts: {_some(list(self.inventory.hosts))}",),
            remedy=hint or "add it to the inventory, or correct the name in the plan",
        )


def _prefetcher(host: AnyHost, asked: Sequence[FactRequest]) -> Callable[[], Callable[[], None]]:
    return lambda: host.begin_prefetch(asked)


def _at_once(begins: Mapping[str, Callable[[], Callable[[], None]]]) -> dict[str, ColdSnapError]:
    """Begin all, then finish all; errors by name."""
    errors: dict[str, ColdSnapError] = {}
    finishes: dict[str, Callable[[], None]] = {}
    for name, begin in begins.items():
        try:
            finishes[name] = begin()
        except ColdSnapError as error:
            errors[name] = error
    for name, finish in finishes.items():
        try:
            finish()
        except ColdSnapError as error:
            errors[name] = error
    return errors


def _identity(inventory: Inventory) -> dict[str, object]:
    """What a saved plan depends on; a fake host's answers are part of what the host is."""
    return {
        "hosts": {
            name: {
                "connector": entry.connector,
                "data": dict(entry.data),
                "vars": dict(entry.vars),
            }
            for name, entry in inventory.hosts.items()
        },
        "groups": {name: list(members) for name, members in inventory.groups.items()},
    }


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")  # noqa: PLR2004
