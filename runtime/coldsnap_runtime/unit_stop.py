"""End a generation and leave nothing of it: no process, no mount, no file but its record."""

from __future__ import annotations

import shutil
import time
from typing import Any

from coldsnap_runtime.container import remove_container
from coldsnap_runtime.context import Context
from coldsnap_runtime.ownership import give_back_unit
from coldsnap_runtime.timing import Timing
from coldsnap_runtime.unit_expose import withdraw
from coldsnap_runtime.unit_init import stop_init
from coldsnap_runtime.unit_record import GenerationPaths, UnitRecord, UnitStore
from coldsnap_runtime.unit_requests import GenerationRequest

_KEPT = ("unit.json", "control")
_KEPT_IN_CONTROL = ("engine.log",)


def stop(request: GenerationRequest, context: Context, timing: Timing) -> dict[str, Any]:
    """TERM to the engine, KILL after the grace. A generation that has ended already is fine.

    Raises:
        ColdSnapError: ``unit.unknown``, ``unit.unkillable``.
    """
    store = UnitStore(context.state_dir)
    record = store.load(request.unit, request.generation)
    paths = store.paths(record.unit, record.generation)
    was_live = record.is_live
    if record.portmap is not None:
        withdraw(record.portmap)
    is_graceful = True
    if record.init is not None and record.init.is_alive:
        context.phase(f"stopping generation {record.generation} of unit {record.unit}")
        with timing.span("stop", generation=record.generation):
            is_graceful = stop_init(record.init, request.grace)
    if record.container:
        remove_container(record.container)
    _clean(paths)
    changes: dict[str, Any] = {"exposed": False, "portmap": None}
    if record.state != "stopped":
        changes |= {"state": "stopped", "since": time.time()}
    store.update(record, **changes)
    give_back_unit(store.unit_dir(record.unit), context.state_dir)
    return {"generation": record.generation, "was_live": was_live, "graceful": is_graceful}


def end_generation(record: UnitRecord) -> None:
    """Kill all that runs of a generation; its files stay."""
    if record.init is not None:
        stop_init(record.init, 0.0)
    if record.container:
        remove_container(record.container)


def end_status(paths: GenerationPaths) -> str:
    """How the root ended, as PID 1 wrote it: ``exited 3``, ``killed 9``, or empty."""
    try:
        lines = (paths.work / "status").read_text().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""


def forget(store: UnitStore, record: UnitRecord) -> None:
    """Remove all that is left of a generation that has ended."""
    shutil.rmtree(store.paths(record.unit, record.generation).folder, ignore_errors=True)


def _clean(paths: GenerationPaths) -> None:
    """Keep the record and the engine's log, for whoever asks why it ended."""
    for folder, kept in ((paths.folder, _KEPT), (paths.control, _KEPT_IN_CONTROL)):
        if not folder.is_dir():
            continue
        for entry in folder.iterdir():
            if entry.name in kept or entry.name == "work":
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
