"""The store on this machine that a command means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldsnap.cli.settings import Origin

if TYPE_CHECKING:
    from coldsnap.artifact.oci.layout import Store
    from coldsnap.cli.session import Session


def store_of(session: Session) -> Store:
    """The store of the settings; by default that of this machine in the inventory in force.

    Raises:
        ColdSnapError: ``store.*``, ``inventory.*``
    """
    from coldsnap.store.uris import open_uri

    found = session.settings.values["store"]
    if found.origin is not Origin.DEFAULT:
        return open_uri(found.value, state_dir=_state_dir(session))
    return open_uri("oci-layout:{state_dir}/store", state_dir=_state_dir(session))


def _state_dir(session: Session) -> str:
    """``state_dir`` of the one host of the inventory that is this machine, else the default."""
    from coldsnap.engine.place import STATE_DIR
    from coldsnap.fleet import open_fleet

    inventory = session.settings["inventory"]
    if inventory.endswith(".py"):
        # A pyinfra inventory is a program; it is not run for the sake of a default.
        return STATE_DIR
    with open_fleet(inventory) as fleet:
        local = [h for h in fleet.inventory.hosts.values() if h.connector == "local"]
    return str(local[0].vars.get("state_dir") or STATE_DIR) if len(local) == 1 else STATE_DIR
