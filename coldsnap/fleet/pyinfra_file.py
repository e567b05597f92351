"""pyinfra's own inventories: read in the child, because they are programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet.entries import HostEntry, Inventory
from coldsnap.fleet.inventory_file import with_defaults
from coldsnap.fleet.link import Link

READ_SECONDS = 60.0
_OWN = ("ssh_", "docker_")
"""Prefixes of pyinfra's connector data; the rest are variables."""


def read_pyinfra_inventory(path: str, link: Link) -> Inventory:
    """Hosts and groups of ``hosts.py``, with the data of ``group_data/``.

    Raises:
        ColdSnapError: ``inventory.invalid``.
    """
    found = link.ask({"do": "inventory", "path": path}, READ_SECONDS)
    names = {host["name"]: _name(host["name"]) for host in found["hosts"]}
    if len(set(names.values())) != len(names):
        raise ColdSnapError("inventory.invalid", f"two hosts of {path} have the same name")
    groups = {
        name: tuple(names[host] for host in names if host in group["hosts"])
        for name, group in found["groups"].items()
        if name != "all" and not name.startswith("@") and name not in names.values()
    }
    hosts = {
        names[host["name"]]: _entry(names[host["name"]], host, found) for host in found["hosts"]
    }
    return Inventory(path, hosts, groups)


def _name(name: str) -> str:
    """``@local`` -> local, ``@docker/box`` -> docker-box: host names become parts of paths."""
    return name.removeprefix("@ssh/").removeprefix("@").replace("/", "-")


def _entry(name: str, host: Mapping[str, Any], found: Mapping[str, Any]) -> HostEntry:
    merged: dict[str, Any] = dict(found["data"])
    for group in found["groups"].values():
        if host["name"] in group["hosts"]:
            merged |= group["data"]
    merged |= host["data"]
    data = {key: value for key, value in merged.items() if key.startswith(_OWN)}
    variables = {key: value for key, value in merged.items() if not key.startswith((*_OWN, "_"))}
    variables |= {
        name: merged[f"_{name}"] for name in ("sudo", "sudo_user") if f"_{name}" in merged
    }
    if host["connector"] == "ssh":
        data.setdefault("ssh_hostname", host["name"].removeprefix("@ssh/"))
    return HostEntry(
        name, host["connector"], data=data, vars=with_defaults(variables, host["connector"])
    )
