"""Stop-gap until coldsnap.plan.rendering lands."""

from __future__ import annotations

from typing import Any

from coldsnap.engine.instances import Expansion, Instance
from coldsnap.engine.preview import InstanceKey
from coldsnap.engine.rendering import NotKnownYet
from coldsnap.engine.setup import Setup
from coldsnap.plan.expressions import parse_condition, parse_text
from coldsnap.sdk.spec import Spec
from coldsnap.sdk.step import Outputs
from coldsnap.sdk.topology import Unit


class PlanRendering:
    def __init__(self, setup: Setup, expansion: Expansion) -> None:
        self._outputs: dict[InstanceKey, Outputs] = {}
        self._fleet = setup.fleet

    def spec(self, instance: Instance) -> Spec:
        kind: type[Spec] = instance.step.spec
        return kind.model_validate(self._fill(dict(instance.node.raw_with), instance))

    def holds(self, instance: Instance) -> bool:
        if instance.node.when is None:
            return True
        return bool(parse_condition(instance.node.when).evaluate(self._names(instance)))

    def unit(self, instance: Instance) -> Unit:
        assert instance.unit is not None
        return instance.unit

    def put(self, key: InstanceKey, outputs: Outputs) -> None:
        self._outputs[key] = outputs

    def _fill(self, value: Any, instance: Instance) -> Any:
        if isinstance(value, dict):
            return {key: self._fill(item, instance) for key, item in value.items()}
        if isinstance(value, str):
            parsed = parse_text(value)
            if parsed is None:
                return value
            for ref in parsed.refs:
                if ref[0] == "steps" and not self._here(str(ref[1]), instance):
                    raise NotKnownYet(str(ref[1]))
            return parsed.evaluate(self._names(instance))
        return value

    def _here(self, step: str, instance: Instance) -> Outputs | None:
        for key, outputs in self._outputs.items():
            if key.step == step and key.host in ("", instance.key.host):
                return outputs
        return None

    def _names(self, instance: Instance) -> dict[str, Any]:
        host = self._fleet.host(instance.key.host) if instance.key.host else None
        steps = {
            need: {"outputs": self._here(need, instance) or {}} for need in instance.node.needs
        }
        return {
            "steps": steps,
            "host": {"name": host.name, "vars": dict(host.vars)} if host else {},
        }
