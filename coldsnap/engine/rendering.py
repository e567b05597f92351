"""Expressions of instances filled in: parameters, conditions, units; and the outputs they see."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.host_facts import HostFacts
from coldsnap.engine.instances import Expansion, Instance
from coldsnap.engine.preview import InstanceKey
from coldsnap.engine.setup import Setup
from coldsnap.plan.rendering import Renderer, RenderScope, UnknownOutput
from coldsnap.sdk.spec import Spec
from coldsnap.sdk.step import Outputs
from coldsnap.sdk.topology import Unit

__all__ = ["Rendering", "UnknownOutput"]


class Rendering:
    """For one preview or one walk; called from many threads."""

    def __init__(self, setup: Setup, expansion: Expansion) -> None:
        self._renderer = Renderer(setup.plan, setup.registry)
        self._fleet = setup.fleet
        self._instances = {
            group.node.id: tuple(instance.key for instance in group.instances)
            for group in expansion.steps
        }
        self._keys = frozenset(expansion.by_key)
        self._facts = {name: HostFacts(setup.fleet.host(name)) for name in expansion.hosts}
        self._units: dict[tuple[str, str], Unit] = {}
        self._outputs: dict[InstanceKey, Outputs] = {}
        self._lock = threading.Lock()

    def spec(self, instance: Instance) -> Spec:
        """The typed parameters.

        Raises:
            ColdSnapError: ``plan.*`` with the place in the plan; ``host.*`` for a fact.
            UnknownOutput: when an output is known only after apply.
        """
        if self._renderer.is_static(instance.node):
            return self._renderer.spec(instance.node, RenderScope())
        return self._renderer.spec(instance.node, self._scope(instance))

    def holds(self, instance: Instance) -> bool:
        """Whether `when`, and that of the template uses around it, hold; raises as `spec`."""
        node = instance.node
        if node.when is None and not node.outer_when:
            return True
        return self._renderer.holds(node, self._scope(instance))

    def unit(self, instance: Instance) -> Unit:
        """The instance's unit with what its host fills in; raises as `spec`."""
        key = instance.key
        unit = self._units.get((key.host, key.unit))
        if unit is None:
            unit = self._renderer.unit(key.unit, self._host_scope(key.host))
            self._units[key.host, key.unit] = unit
        return unit

    def put(self, key: InstanceKey, outputs: Outputs) -> None:
        """Make outputs known to the instances that need this one."""
        with self._lock:
            self._outputs[key] = outputs

    def _scope(self, instance: Instance) -> RenderScope:
        key = instance.key
        base = self._host_scope(key.host)
        unit = self.unit(instance) if instance.unit is not None else None
        return RenderScope(
            base.host, base.host_vars, base.host_facts, unit, lambda step: self._seen(step, key)
        )

    def _host_scope(self, host: str) -> RenderScope:
        if not host:
            return RenderScope()
        return RenderScope(host, self._fleet.host(host).vars, self._facts[host])

    def _seen(self, step: str, here: InstanceKey) -> Outputs | None:
        """Outputs of a step as an instance sees them: its own unit's, its host's, the run's.

        Raises:
            ColdSnapError: ``plan.ambiguous-output`` where the step ran several times and none
                of them is nearer than the others, unless all brought the same.
        """
        keys = self._instances[step]
        for near in (
            InstanceKey(step, here.host, here.unit),
            InstanceKey(step, here.host),
            InstanceKey(step),
        ):
            if near in self._keys:
                return self._known(near)
        candidates = [key for key in keys if key.host == here.host] or list(keys)
        found = [self._known(key) for key in candidates]
        first = found[0]
        if any(outputs is None for outputs in found):
            return None
        if any(outputs != first for outputs in found):
            raise _ambiguous(step, here, candidates)
        return first

    def _known(self, key: InstanceKey) -> Mapping[str, object] | None:
        with self._lock:
            return self._outputs.get(key)


def _ambiguous(step: str, here: InstanceKey, candidates: list[InstanceKey]) -> ColdSnapError:
    return ColdSnapError(
        "plan.ambiguous-output",
        f"{here} refers to outputs of {step}, which ran {len(candidates)} times and differed",
        details=tuple(str(key) for key in candidates[:10]),
        remedy="narrow that step with hosts:, or use its outputs in a step on the same host",
    )
