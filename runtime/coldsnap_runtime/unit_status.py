"""The verb ``unit.status``: what runs here, as it is true now."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from coldsnap.artifact.decode import Record, decode
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.rules import AbsolutePath, Count, Id, Line
from coldsnap_runtime.generation_notes import ACCEPTED, HYDRATED, START, read_note, without_boot
from coldsnap_runtime.gpus import read_gpus
from coldsnap_runtime.host_pids import host_pids
from coldsnap_runtime.host_room import taken_ports
from coldsnap_runtime.namespaces import root_of
from coldsnap_runtime.software import package_versions
from coldsnap_runtime.unit_processes import file_uses, processes
from coldsnap_runtime.unit_record import UnitStore
from coldsnap_runtime.unit_requests import Port

if TYPE_CHECKING:
    from coldsnap_runtime.context import Context
    from coldsnap_runtime.unit_record import UnitRecord

_ENDED_SHOWN = 3
"""Of each unit, the newest generations that have ended."""


@dataclass(frozen=True)
class PlacePort(Record):
    host: Line
    port: int


@dataclass(frozen=True)
class Place(Record):
    """Where a plan wants to put a unit: asked before anything is started."""

    ports: Annotated[tuple[PlacePort, ...], Count(0, 64)] = ()
    folders: Annotated[tuple[AbsolutePath, ...], Count(0, 256)] = ()


@dataclass(frozen=True)
class StatusRequest(Record):
    unit: Id | None = None
    details: bool = False
    """Whether to tell how live generations were hydrated and what they answered, too."""
    software: bool = False
    """Whether to tell the versions of the Python packages that live generations run."""
    place: Place | None = None
    """With `unit`: whether it could be put there."""


def status(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """``{units: [...]}``: every live generation, and the last few that ended.

    With `place` also ``place: {taken: [{host, port}], missing: [folder]}``: ports that another
    program has, folders that are not there.
    """
    request = decode(StatusRequest, value, what="unit.status", code="request.invalid")
    store = UnitStore(context.state_dir)
    names = store.units() if request.unit is None else [request.unit]
    rows: list[dict[str, Any]] = []
    for name in names:
        records = store.generations(name)
        ended = [record.generation for record in records if not record.is_live]
        hidden = set(ended[:-_ENDED_SHOWN])
        shown = [record for record in records if record.generation not in hidden]
        rows += [_row(record) | _details(store, record, request) for record in shown]
    return {"units": rows, **_place(store, request)}


def _place(store: UnitStore, request: StatusRequest) -> dict[str, Any]:
    if request.place is None or request.unit is None:
        return {}
    wanted = [Port("", 0, port.host, port.port) for port in request.place.ports]
    taken = taken_ports(wanted, store.generations(request.unit))
    missing = [folder for folder in request.place.folders if not os.path.exists(folder)]
    told = [{"host": port.host, "port": port.port} for port in taken]
    return {"place": {"taken": told, "missing": missing}}


def _details(store: UnitStore, record: UnitRecord, request: StatusRequest) -> dict[str, Any]:
    """Of a live generation: its rung, and the results of unit.hydrate and unit.accept, or null.

    The rung is empty after a cold start; docs/process-images.md names the others.
    """
    if not record.is_live:
        return {}
    paths = store.paths(record.unit, record.generation)
    told: dict[str, Any] = {"rung": read_note(paths, START).get("rung", "")}
    if request.software:
        told["software"] = _software(record)
    if not request.details:
        return told
    found = {"hydrated": read_note(paths, HYDRATED), "accepted": read_note(paths, ACCEPTED)}
    notes = {name: without_boot(note) or None for name, note in found.items()}
    return {**told, **notes, "gpu_bytes": _gpu_bytes(record)}


def _gpu_bytes(record: UnitRecord) -> int:
    """On all GPUs of this host; 0 where the driver does not tell."""
    gpus = read_gpus()
    if not gpus.found or record.init is None:
        return 0
    inside = [process.pid for process in _processes(record)]
    mine = set(host_pids(record.init.pid, inside).values())
    return sum(size for gpu in gpus.found for pid, size in gpu.holders if pid in mine)


def _software(record: UnitRecord) -> dict[str, str]:
    if record.init is None:
        return {}
    pid = record.init.pid
    paths = {use.path for process in _processes(record) for use in file_uses(pid, process.pid)}
    return package_versions(root_of(pid), sorted(paths))


def _row(record: UnitRecord) -> dict[str, Any]:
    found = _processes(record)
    return {
        "unit": record.unit,
        "generation": record.generation,
        "state": record.state,
        "engine": record.engine,
        "model": record.model,
        "launch_sha256": record.launch_sha256,
        "request_sha256": record.request_sha256,
        "artifact": record.artifact,
        "since": record.since,
        "exposed": record.exposed,
        "network": record.network,
        "ports": [vars(port) for port in record.ports],
        "pid": record.init.pid if record.init and record.is_live else None,
        "pids": [process.pid for process in found],
        "rss_bytes": sum(process.rss_bytes for process in found),
    }


def _processes(record: UnitRecord) -> list[Any]:
    if not record.is_live or record.init is None or record.state == "starting":
        return []
    try:
        return list(processes(record.init.pid, record.root_pid))
    except (OSError, ColdSnapError):
        return []  # it ended while it was looked at
