"""What was launched: engine, model, units and the topology of workers, groups and services.

Identity (ids, order, command, model revision, mount targets) and placement (host, devices, mount
sources) stand in the same record, as in the published request format; `identity` strips the
latter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from coldsnap.artifact import canonical
from coldsnap.artifact.decode import Record
from coldsnap.artifact.rules import (
    AbsolutePath,
    Count,
    Digest,
    EnvName,
    Id,
    Line,
    Natural,
    Prose,
    QualifiedName,
    Text,
)

GroupKind = Annotated[str, Text(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", 1, 128, "a group kind")]


@dataclass(frozen=True)
class LaunchModel(Record):
    id: Annotated[str, Text(shortest=1, longest=512)]
    """Name on the Hub, or the name that it is served under."""
    revision: Line = ""
    """Commit of the Hub revision; empty for a local folder."""
    source: Line = ""
    """``hf`` or ``path``."""


@dataclass(frozen=True)
class LaunchMount(Record):
    source: Line
    """Absolute path on the host (placement)."""
    target: AbsolutePath
    read_only: bool = True


@dataclass(frozen=True)
class LaunchUnit(Record):
    """One process tree or container."""

    id: Id
    index: Natural
    """Its position in the list."""
    host: Line = ""
    devices: Annotated[tuple[Line, ...], Count(0, 1024)] = ()
    image: Line = ""
    """Container image; empty for a process tree on the host."""
    image_digest: Line = ""
    command: Annotated[tuple[Prose, ...], Count(0, 4096)] = ()
    environment: Annotated[Mapping[EnvName, Prose], Count(0, 4096, of_object=True)] = field(
        default_factory=dict
    )
    mounts: Annotated[tuple[LaunchMount, ...], Count(0, 1024)] = ()
    extensions: Mapping[Id, Any] = field(default_factory=dict)
    """Ours: ports, network, shm, caches, runtime."""

    def problems(self) -> Iterator[tuple[str, str]]:
        targets = [mount.target for mount in self.mounts]
        if len(set(targets)) != len(targets):
            yield "/mounts", "two mounts have one target"
        if len(set(self.devices)) != len(self.devices):
            yield "/devices", "a device is given twice"
        if self.image_digest and not ("@" + self.image).endswith("@" + self.image_digest):
            yield "/image", "must be its digest or end with @ and its digest"
        for index, mount in enumerate(self.mounts):
            if mount.source and (not mount.source.startswith("/") or ".." in mount.source):
                yield f"/mounts/{index}/source", "must be a clean absolute path"


@dataclass(frozen=True)
class LaunchWorker(Record):
    """One accelerator-owning slot of a unit."""

    id: Id
    unit: Id
    service: Id
    process_slot: Natural = 0
    device_slots: Annotated[tuple[Natural, ...], Count(0, 1024)] = ()


@dataclass(frozen=True)
class LaunchGroup(Record):
    """Ordered ranks; exactly one group whose kind ends in ``:world`` holds each worker."""

    id: Id
    kind: GroupKind
    service: Id
    members: Annotated[tuple[Id, ...], Count(1, 65536)]


@dataclass(frozen=True)
class LaunchService(Record):
    id: Id
    role: Id
    workers: Annotated[tuple[Id, ...], Count(1, 65536)]


@dataclass(frozen=True)
class LaunchAdapter(Record):
    """Engine-owned data of the topology, bound by its digest."""

    schema: QualifiedName
    digest: Digest
    payload: Mapping[str, Any]

    def problems(self) -> Iterator[tuple[str, str]]:
        if canonical.digest(self.payload) != self.digest:
            yield "/digest", "is not that of the payload"


@dataclass(frozen=True)
class Execution(Record):
    """Workers, groups and services; all empty where one unit is all there is."""

    workers: Annotated[tuple[LaunchWorker, ...], Count(0, 65536)] = ()
    groups: Annotated[tuple[LaunchGroup, ...], Count(0, 65536)] = ()
    services: Annotated[tuple[LaunchService, ...], Count(0, 65536)] = ()
    adapter: LaunchAdapter | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        yield from _unique_ids(self)
        workers = {worker.id: worker for worker in self.workers}
        for index, service in enumerate(self.services):
            own = {worker.id for worker in self.workers if worker.service == service.id}
            if set(service.workers) != own:
                yield f"/services/{index}/workers", "must be the workers that name this service"
        services = {service.id for service in self.services}
        for index, worker in enumerate(self.workers):
            if worker.service not in services:
                yield f"/workers/{index}/service", f"there is no service {worker.service!r}"
        for index, group in enumerate(self.groups):
            for member in group.members:
                if member not in workers or workers[member].service != group.service:
                    reason = f"{member!r} is no worker of service {group.service!r}"
                    yield f"/groups/{index}/members", reason
        yield from _one_world(self)
        yield from _slots(self)


@dataclass(frozen=True)
class Launch(Record):
    engine: Id
    model: LaunchModel
    units: Annotated[tuple[LaunchUnit, ...], Count(1, 4096)]
    execution: Execution = field(default_factory=Execution)

    def problems(self) -> Iterator[tuple[str, str]]:
        seen: set[tuple[str, str]] = set()
        if len({unit.id for unit in self.units}) != len(self.units):
            yield "/units", "two units have one id"
        for index, unit in enumerate(self.units):
            if unit.index != index:
                yield f"/units/{index}/index", f"must be {index}, its position"
            for device in unit.devices if unit.host else ():
                if (unit.host, device) in seen:
                    reason = f"device {device!r} of host {unit.host!r} is given twice"
                    yield f"/units/{index}/devices", reason
                seen.add((unit.host, device))

    def workers(self) -> tuple[str, ...]:
        """Ids of the workers of these units; the unit's own id where no worker is spelled out."""
        units = {unit.id for unit in self.units}
        named = tuple(w.id for w in self.execution.workers if w.unit in units)
        return named or tuple(unit.id for unit in self.units)

    def identity(self) -> Launch:
        """The same without placement: hosts, devices, mount sources."""
        return replace(self, units=tuple(_placeless(unit) for unit in self.units))


def _placeless(unit: LaunchUnit) -> LaunchUnit:
    mounts = tuple(replace(mount, source="") for mount in unit.mounts)
    return replace(unit, host="", devices=(), mounts=mounts)


def _unique_ids(execution: Execution) -> Iterator[tuple[str, str]]:
    for name in ("workers", "groups", "services"):
        ids = [item.id for item in getattr(execution, name)]
        if len(set(ids)) != len(ids):
            yield f"/{name}", "two have one id"
    filled = [bool(execution.workers), bool(execution.groups), bool(execution.services)]
    if any(filled) and not all(filled):
        yield "", "workers, groups and services stand together or not at all"


def _one_world(execution: Execution) -> Iterator[tuple[str, str]]:
    worlds: dict[str, int] = dict.fromkeys((worker.id for worker in execution.workers), 0)
    for group in execution.groups:
        for member in group.members if group.kind.endswith(":world") else ():
            worlds[member] = worlds.get(member, 0) + 1
    for worker, count in worlds.items():
        if count != 1:
            yield "/groups", f"worker {worker!r} is in {count} groups of a kind ending in :world"


def _slots(execution: Execution) -> Iterator[tuple[str, str]]:
    processes: set[tuple[str, int]] = set()
    devices: set[tuple[str, int]] = set()
    for index, worker in enumerate(execution.workers):
        if (worker.unit, worker.process_slot) in processes:
            yield f"/workers/{index}/process_slot", "is taken by another worker of the unit"
        processes.add((worker.unit, worker.process_slot))
        for slot in worker.device_slots:
            if (worker.unit, slot) in devices:
                yield f"/workers/{index}/device_slots", f"slot {slot} belongs to another worker"
            devices.add((worker.unit, slot))
