"""Where the CRIU of this pack is found from inside a unit."""

from __future__ import annotations

import os
from pathlib import Path

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.installation import Installation
from coldsnap_runtime.namespaces import root_of
from coldsnap_runtime.unit_init import INSIDE_CRIU
from coldsnap_runtime.unit_record import ProcessRef


def criu_inside(installation: Installation, init: ProcessRef) -> tuple[str, ...]:
    """Command of this very CRIU inside the unit: that bound when it was started, or its own.

    A bundle is started through its own loader: its wrapper needs a shell, which a container may
    not have.

    Raises:
        ColdSnapError: ``runtime.hidden`` if the unit was started with another pack and hides the
            folder of this one.
    """
    own = installation.criu.resolve()
    for folder in (INSIDE_CRIU, os.fspath(own.parent)):
        if _is_same(root_of(init.pid) / folder.lstrip("/") / own.name, own):
            return _command(own, folder)
    raise ColdSnapError(
        "runtime.hidden",
        f"{own} cannot be seen inside the unit, which was started with another runtime pack",
        remedy="keep the state folder outside of /tmp and /dev/shm, or launch the unit again",
    )


def _command(own: Path, folder: str) -> tuple[str, ...]:
    loaders = sorted((own.parent / "lib").glob("ld-linux*.so.*"))
    if not loaders or not (own.parent / "criu.bin").is_file():
        return (f"{folder}/{own.name}",)
    library = f"{folder}/lib"
    return (f"{library}/{loaders[0].name}", "--library-path", library, f"{folder}/criu.bin")


def _is_same(first: Path, second: Path) -> bool:
    try:
        return os.path.samestat(first.stat(), second.stat())
    except OSError:
        return False
