"""pyinfra's own inventories (``hosts.py`` with ``group_data/``), read by pyinfra.

They are programs: they run here, in the child, and the parent gets plain data.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyinfra import context
from pyinfra.api import State
from pyinfra_cli.inventory import (  # type: ignore[import-untyped]
    make_inventory_from_files,
)

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet.child.facts import plain

CONNECTORS = {"SSHConnector": "ssh", "LocalConnector": "local", "DockerConnector": "docker"}


def read_inventory(path: str) -> dict[str, Any]:
    """``{"hosts": [{name, connector, data}], "groups": {name: {"hosts": [...], "data": {}}}}``.

    Raises:
        ColdSnapError: ``inventory.invalid``: it fails, or uses a connector that we cannot.
    """
    # Their loader notes the file's name on the state.
    context.ctx_state.set(State())  # type: ignore[no-untyped-call]
    try:
        inventory = make_inventory_from_files(path, cwd=str(Path(path).resolve().parent))
    except (SystemExit, Exception) as error:
        raise ColdSnapError(
            "inventory.invalid",
            f"pyinfra cannot load the inventory {os.fspath(path)}",
            cause=_reason(error),
        ) from error
    finally:
        context.ctx_state.reset()
    hosts = [_host(path, host) for host in inventory]
    groups = {
        name: {"hosts": [host.name for host in members], "data": _plain(inventory.group_data[name])}
        for name, members in inventory.groups.items()
    }
    return {"hosts": hosts, "groups": groups, "data": _plain(inventory.data)}


def _reason(error: BaseException) -> str:
    """What the file's own code raised; pyinfra wraps it."""
    inner = getattr(error, "e", None) or getattr(error, "exception", None) or error
    return f"{type(inner).__name__}: {inner}"[:500]


def _host(path: str, host: Any) -> dict[str, Any]:
    connector = CONNECTORS.get(host.connector_cls.__name__)
    if connector is None:
        raise ColdSnapError(
            "inventory.invalid",
            f"host {host.name} in {path} uses a connector that coldsnap does not support",
            cause=host.connector_cls.__name__,
            remedy="use @local, @ssh or @docker (a running container)",
        )
    return {"name": host.name, "connector": connector, "data": _plain(host.host_data)}


def _plain(data: Any) -> dict[str, Any]:
    return {str(key): plain(value) for key, value in dict(data).items()}
