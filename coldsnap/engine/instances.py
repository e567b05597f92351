"""Instances: steps x hosts x units, with their needs.

A unit is placed once on each host of its `hosts`; a step's `hosts` narrows that. An instance
needs the instances of its needed steps on the same host (and for the same unit, where both have
one); a step that shares no host with its need, or one of which runs on no host, needs all of
them. So hosts go on at their own pace, and where all must meet the plan says so with a barrier.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.fleet import Fleet
from coldsnap.engine.preview import InstanceKey
from coldsnap.plan.model import Plan, StepNode
from coldsnap.sdk.step import Scope, Step
from coldsnap.sdk.topology import Unit


@dataclass(frozen=True)
class Instance:
    key: InstanceKey
    node: StepNode
    step: Step[Any]
    unit: Unit | None
    """As the plan has it; its expressions that need a host are filled in per instance."""
    needs: tuple[InstanceKey, ...]

    @property
    def label(self) -> str:
        """What `StepContext.where` says of it."""
        if not self.key.host:
            return "run"
        return f"{self.key.host}: unit {self.key.unit}" if self.key.unit else self.key.host


@dataclass(frozen=True)
class StepInstances:
    """All instances of one step, by host and then unit, in the order of inventory and plan."""

    node: StepNode
    step: Step[Any]
    instances: tuple[Instance, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Expansion:
    steps: tuple[StepInstances, ...]
    """In an order in which needs come first."""
    hosts: tuple[str, ...]
    """Every host that an instance runs on, in the order of the inventory."""
    by_key: Mapping[InstanceKey, Instance] = field(repr=False)

    def __iter__(self) -> Iterator[Instance]:
        for group in self.steps:
            yield from group.instances

    def __len__(self) -> int:
        return len(self.by_key)

    def group(self, step_id: str) -> StepInstances:
        return next(group for group in self.steps if group.node.id == step_id)


def expand(
    plan: Plan, order: tuple[str, ...], types: Mapping[str, type[Step[Any]]], fleet: Fleet
) -> Expansion:
    """All instances of a plan.

    Args:
        plan: a validated plan.
        order: ids of its steps, needs first.
        types: step type -> class.
        fleet: asked for the hosts that selectors mean; nothing is connected.

    Raises:
        ColdSnapError: ``inventory.unknown-host``; ``plan.no-place`` for a step that would run
            nowhere.
    """
    placement = _Placement(plan, fleet)
    groups: dict[str, StepInstances] = {}
    for step_id in order:
        node = plan.step(step_id)
        step = types[node.type]()
        keys = placement.keys(node, step.scope)
        groups[step_id] = _group(node, step, keys, placement.units, groups)
    by_key = {instance.key: instance for group in groups.values() for instance in group.instances}
    used = {key.host for key in by_key}
    hosts = tuple(host for host in fleet.select("all") if host in used)
    return Expansion(tuple(groups.values()), hosts, by_key)


class _Placement:
    """Where units are, from the plan's selectors."""

    def __init__(self, plan: Plan, fleet: Fleet) -> None:
        self._fleet = fleet
        units = plan.topology.units if plan.topology else ()
        self.units = {unit.id: unit for unit in units}
        self._hosts = {unit.id: self._select(unit.hosts, f"unit {unit.id}") for unit in units}

    def keys(self, node: StepNode, scope: Scope) -> list[InstanceKey]:
        if scope is Scope.RUN:
            return [InstanceKey(node.id)]
        chosen = self._select(node.hosts, f"step {node.id}") if node.hosts else None
        if scope is Scope.HOST:
            hosts = chosen if chosen is not None else self._default_hosts()
            keys = [InstanceKey(node.id, host) for host in hosts]
        else:
            keys = [
                InstanceKey(node.id, host, unit)
                for host in self._default_hosts()
                if chosen is None or host in chosen
                for unit, hosts in self._hosts.items()
                if host in hosts
            ]
        if not keys:
            raise self._nowhere(node, scope)
        return keys

    def _default_hosts(self) -> tuple[str, ...]:
        """Hosts of any unit; all hosts for a plan without units."""
        if not self._hosts:
            return self._fleet.select("all")
        used = {host for hosts in self._hosts.values() for host in hosts}
        return tuple(host for host in self._fleet.select("all") if host in used)

    def _select(self, selector: str, what: str) -> tuple[str, ...]:
        try:
            return self._fleet.select(selector)
        except ColdSnapError as error:
            error.where = error.where or what
            raise

    def _nowhere(self, node: StepNode, scope: Scope) -> ColdSnapError:
        if scope is Scope.UNIT and not self._hosts:
            cause, remedy = "the plan has no units", "add units to the plan"
        elif node.hosts:
            cause = f"no unit is placed on a host of {node.hosts!r}"
            remedy = "name hosts on which the plan's units are placed"
        else:
            cause, remedy = "the inventory has no hosts", "add a host to the inventory"
        return ColdSnapError(
            "plan.no-place",
            f"step {node.id} would run nowhere",
            cause=cause,
            remedy=remedy,
            source=node.sources.get("hosts") or node.source,
        )


def _group(
    node: StepNode,
    step: Step[Any],
    keys: list[InstanceKey],
    units: Mapping[str, Unit],
    done: Mapping[str, StepInstances],
) -> StepInstances:
    needed = [_Needed(done[need]) for need in node.needs]
    instances = tuple(
        Instance(
            key,
            node,
            step,
            units.get(key.unit),
            tuple(needs for need in needed for needs in need.of(key)),
        )
        for key in keys
    )
    return StepInstances(node, step, instances, tuple(item.label for item in instances))


class _Needed:
    """One needed step: which of its instances another step's instance waits for."""

    def __init__(self, group: StepInstances) -> None:
        self._all = tuple(instance.key for instance in group.instances)
        self._by_host: dict[str, list[InstanceKey]] = {}
        for key in self._all:
            self._by_host.setdefault(key.host, []).append(key)

    def of(self, key: InstanceKey) -> tuple[InstanceKey, ...]:
        here = self._by_host.get(key.host) if key.host else None
        if not here:
            return self._all
        same = tuple(need for need in here if not key.unit or need.unit in ("", key.unit))
        return same or tuple(here)
