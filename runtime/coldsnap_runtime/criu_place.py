"""Where the CRIU of this pack is found from inside a unit."""

from __future__ import annotations

import os
from pathlib import Path

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.installation import Installation
from coldsnap_runtime.namespaces import root_of
from coldsnap_runtime.unit_init import INSIDE_CRIU
from coldsnap_runtime.unit_record import ProcessRef


def criu_inside(installation: Installation, init: ProcessRef) -> str:
    """Path of this very CRIU inside the unit: that bound when it was started, or its own.

    Raises:
        ColdSnapError: ``runtime.hidden`` if the unit was started with another pack and hides the
            folder of this one.
    """
    own = installation.criu.resolve()
    for path in (f"{INSIDE_CRIU}/{own.name}", os.fspath(own)):
        if _is_same(root_of(init.pid) / path.lstrip("/"), own):
            return path
    raise ColdSnapError(
        "runtime.hidden",
        f"{own} cannot be seen inside the unit, which was started with another runtime pack",
        remedy="keep the state folder outside of /tmp and /dev/shm, or launch the unit again",
    )


def _is_same(first: Path, second: Path) -> bool:
    try:
        return os.path.samestat(first.stat(), second.stat())
    except OSError:
        return False
