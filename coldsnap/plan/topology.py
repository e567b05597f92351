"""Units, workers, groups, services: what is implied, and the rules between them.

Implied: one unit ``u0`` if the plan has an engine and no units; one worker per unit; one service
per `service` of the workers; for each service without a ``:world`` group, one of all its workers.
A worker is in exactly one group whose kind ends in ``:world``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from coldsnap.artifact.errors import Source
from coldsnap.plan.problems import Problems, hint, shown
from coldsnap.plan.unit_rules import check_units
from coldsnap.sdk.topology import Group, Service, Topology, Unit, Worker

Place: TypeAlias = Callable[[tuple[str | int, ...]], Source | None]
"""Path in the document -> its place; ``("workers", 0, "unit")``."""

WORLD = ":world"
_KIND = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}:[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def complete(
    units: Sequence[Unit],
    workers: Sequence[Worker] | None,
    groups: Sequence[Group] | None,
    services: Sequence[Service] | None,
) -> Topology:
    """A topology with what is implied filled in; not checked."""
    if workers is None:
        workers = [
            Worker(id=f"w{index}", unit=unit.id, device_slots=tuple(range(len(unit.devices))))
            for index, unit in enumerate(units)
        ]
    if services is None:
        services = [
            Service(id=name, workers=tuple(w.id for w in workers if w.service == name))
            for name in dict.fromkeys(worker.service for worker in workers)
        ]
    groups = [*(groups or ()), *_worlds(workers, groups or ())]
    return Topology(
        units=tuple(units), workers=tuple(workers), groups=tuple(groups), services=tuple(services)
    )


def _worlds(workers: Sequence[Worker], groups: Sequence[Group]) -> list[Group]:
    """The implied world group of each service that has none."""
    have = {group.service for group in groups if group.kind.endswith(WORLD)}
    return [
        Group(
            id=f"{service}-world",
            kind=f"{service}{WORLD}",
            service=service,
            members=tuple(worker.id for worker in workers if worker.service == service),
        )
        for service in dict.fromkeys(worker.service for worker in workers)
        if service not in have
    ]


def check_topology(
    topology: Topology,
    place: Place,
    problems: Problems,
    open_ports: frozenset[tuple[int, int]] = frozenset(),
) -> None:
    """Add every broken rule to `problems`; arguments as of `check_units`."""
    known = len(problems.found)
    for name in ("units", "workers", "groups", "services"):
        _check_unique(name, getattr(topology, name), place, problems)
    check_units(topology.units, place, problems, open_ports)
    if len(problems.found) == known:
        _check_workers(topology, place, problems)
        _check_services(topology, place, problems)
        _check_groups(topology, place, problems)
        _check_worlds(topology, place, problems)


def _check_unique(name: str, items: Sequence[Any], place: Place, problems: Problems) -> None:
    seen: set[str] = set()
    for index, item in enumerate(items):
        if item.id in seen:
            what = name[:-1]
            problems.add(
                "plan.duplicate-id",
                f"two {name} have the id {shown(item.id)}",
                place((name, index, "id")),
                remedy=f"rename one {what}",
            )
        seen.add(item.id)


def _check_workers(topology: Topology, place: Place, problems: Problems) -> None:
    units = {unit.id: unit for unit in topology.units}
    slots: dict[tuple[str, int], str] = {}
    devices: dict[tuple[str, int], str] = {}
    for index, worker in enumerate(topology.workers):
        path = ("workers", index)
        if worker.unit not in units:
            problems.add(
                "plan.unknown-unit",
                f"worker {shown(worker.id)} is in unit {shown(worker.unit)}, which is not there",
                place((*path, "unit")),
                remedy=hint(worker.unit, units),
            )
            continue
        other = slots.setdefault((worker.unit, worker.process_slot), worker.id)
        if other != worker.id:
            problems.add(
                "plan.process-slot",
                f"workers {shown(other)} and {shown(worker.id)} share process slot"
                f" {worker.process_slot} of unit {shown(worker.unit)}",
                place((*path, "process_slot")),
                remedy="number the workers of a unit 0, 1, 2...",
            )
        _check_slots(worker, units[worker.unit], devices, place((*path, "device_slots")), problems)
    for index, unit in enumerate(topology.units):
        if not any(worker.unit == unit.id for worker in topology.workers):
            problems.add(
                "plan.unit-without-worker",
                f"unit {shown(unit.id)} has no worker",
                place(("units", index)),
                remedy="add one under workers, or leave workers out to have one per unit",
            )


def _check_slots(
    worker: Worker,
    unit: Unit,
    taken: dict[tuple[str, int], str],
    source: Source | None,
    problems: Problems,
) -> None:
    for slot in worker.device_slots:
        if not 0 <= slot < len(unit.devices):
            problems.add(
                "plan.device-slot",
                f"worker {shown(worker.id)} has device slot {slot};"
                f" unit {shown(unit.id)} has {len(unit.devices)} devices",
                source,
                remedy="slots count the unit's devices from 0",
            )
            continue
        other = taken.setdefault((unit.id, slot), worker.id)
        if other != worker.id:
            problems.add(
                "plan.device-slot",
                f"workers {shown(other)} and {shown(worker.id)} share device slot {slot}"
                f" of unit {shown(unit.id)}",
                source,
            )


def _check_services(topology: Topology, place: Place, problems: Problems) -> None:
    workers = {worker.id: worker for worker in topology.workers}
    services = {service.id: service for service in topology.services}
    for index, service in enumerate(topology.services):
        for position, name in enumerate(service.workers):
            path = ("services", index, "workers", position)
            if name not in workers:
                _unknown_worker(
                    f"service {shown(service.id)}", name, workers, place(path), problems
                )
            elif workers[name].service != service.id:
                problems.add(
                    "plan.service",
                    f"service {shown(service.id)} lists worker {shown(name)}, which is in"
                    f" service {shown(workers[name].service)}",
                    place(path),
                )
    for index, worker in enumerate(topology.workers):
        service_of = services.get(worker.service)
        if service_of is None or worker.id not in service_of.workers:
            problems.add(
                "plan.service",
                f"worker {shown(worker.id)} is in service {shown(worker.service)}, which"
                + (" does not list it" if service_of else " is not there"),
                place(("workers", index, "service")),
                remedy=hint(worker.service, services),
            )


def _check_groups(topology: Topology, place: Place, problems: Problems) -> None:
    workers = {worker.id: worker for worker in topology.workers}
    for index, group in enumerate(topology.groups):
        label = f"group {shown(group.id)}"
        if not _KIND.fullmatch(group.kind):
            problems.add(
                "plan.wrong-value",
                f"{label}: the kind {shown(group.kind)} is not of the form name:name",
                place(("groups", index, "kind")),
                remedy="such as vllm:tp or vllm:world",
            )
        for name, count in Counter(group.members).items():
            position = group.members.index(name)
            source = place(("groups", index, "members", position))
            if name not in workers:
                _unknown_worker(label, name, workers, source, problems)
                continue
            if count > 1:
                problems.add(
                    "plan.group", f"{label} has worker {shown(name)} {count} times", source
                )
            if workers[name].service != group.service:
                problems.add(
                    "plan.group",
                    f"{label} belongs to service {shown(group.service)}, its member {shown(name)}"
                    f" to {shown(workers[name].service)}",
                    source,
                )


def _check_worlds(topology: Topology, place: Place, problems: Problems) -> None:
    worlds = [group for group in topology.groups if group.kind.endswith(WORLD)]
    for index, worker in enumerate(topology.workers):
        around = [group.id for group in worlds if worker.id in group.members]
        if len(around) != 1:
            found = f"is in {len(around)}: {', '.join(around)}" if around else "is in none"
            problems.add(
                "plan.world-group",
                f"worker {shown(worker.id)} must be in exactly one {WORLD} group; it {found}",
                place(("workers", index)),
                remedy="list it in the members of one group of a kind such as vllm:world",
            )


def _unknown_worker(
    label: str, name: str, workers: Iterable[str], source: Source | None, problems: Problems
) -> None:
    problems.add(
        "plan.unknown-worker",
        f"{label} lists worker {shown(name)}, which is not there",
        source,
        remedy=hint(name, workers),
    )
