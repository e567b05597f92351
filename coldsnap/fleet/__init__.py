"""Hosts: inventories, facts, operations, uploads. The only part that speaks with pyinfra.

Importing this package imports neither pyinfra nor gevent: they live in a child process that
starts when a real host is first needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coldsnap.fleet.fake import FakeHost
    from coldsnap.fleet.fleet import InventoryFleet
    from coldsnap.fleet.inventory import inventory_schema

__all__ = ["FakeHost", "InventoryFleet", "inventory_schema", "open_fleet"]

_PLACES = {
    "FakeHost": "coldsnap.fleet.fake",
    "InventoryFleet": "coldsnap.fleet.fleet",
    "inventory_schema": "coldsnap.fleet.inventory",
}


def open_fleet(path: str) -> InventoryFleet:
    """The fleet of an inventory: a YAML file, a pyinfra ``.py`` file, or ``@local``.

    Connects to nothing; a pyinfra file starts the child, which reads it.

    Raises:
        ColdSnapError: ``inventory.*``
    """
    from coldsnap.fleet.fleet import InventoryFleet  # noqa: PLC0415  # see the module's text
    from coldsnap.fleet.inventory_file import read_inventory  # noqa: PLC0415
    from coldsnap.fleet.link import Link  # noqa: PLC0415

    link = Link()
    if not path.endswith(".py"):
        return InventoryFleet(read_inventory(path), link)
    from coldsnap.fleet.pyinfra_file import read_pyinfra_inventory  # noqa: PLC0415

    try:
        return InventoryFleet(read_pyinfra_inventory(path, link), link)
    except BaseException:
        link.close()
        raise


def __getattr__(name: str) -> Any:
    """Load what is asked for, and no more: the child imports this package too."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415

    return getattr(importlib.import_module(_PLACES[name]), name)
