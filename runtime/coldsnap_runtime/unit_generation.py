"""The folder of a generation: made with all that a start needs, removed with all that ran."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from coldsnap_runtime.container import remove_container
from coldsnap_runtime.unit_init import stop_init
from coldsnap_runtime.unit_record import GenerationPaths, PortRecord, ProcessRef, UnitStore

if TYPE_CHECKING:
    from coldsnap_runtime.installation import Installation
    from coldsnap_runtime.unit_requests import Port


def make_generation(
    store: UnitStore, unit: str, installation: Installation
) -> tuple[int, GenerationPaths]:
    """A numbered folder with all that the standard mounts need."""
    number, paths = store.create(unit)
    try:
        for folder in (paths.control, paths.tmp, paths.work):
            folder.mkdir()
        paths.tmp.chmod(0o1777)
        shutil.copyfile(installation.unit, paths.unit_program)
        paths.unit_program.chmod(0o755)
        paths.engine_log.touch(0o644)
    except BaseException:
        discard_generation(paths, None)
        raise
    return number, paths


def discard_generation(
    paths: GenerationPaths, init: ProcessRef | None, container: str = ""
) -> None:
    """End what runs and remove what was written."""
    if init is not None:
        stop_init(init, 0.0)
    if container:
        remove_container(container)
    shutil.rmtree(paths.folder, ignore_errors=True)


def port_records(ports: tuple[Port, ...]) -> tuple[PortRecord, ...]:
    return tuple(PortRecord(port.name, port.inner, port.host, port.port) for port in ports)
