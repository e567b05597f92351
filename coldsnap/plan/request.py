"""The resolved request of a plan: what identifies its operation, and the digest of that.

It is a subset of operation request format 4 without placement: engine, driver, model, what is
semantic of each unit (id, command, environment, caches, inner ports, mount targets, device
slots...; not hosts, host ports, mount sources, device ordinals), workers, groups, services, and of
every expanded step its type and parameters after variables are filled in. Not in it: names,
descriptions, comments, ids and order of steps' document, `hosts`, `when`, `timeout`, `retry`,
`on_failure`, the store, and parameters whose field is marked ``json_schema_extra={"placement":
True}`` in the step's spec.

So two plans that differ only in comments, names or placement have the same digest, and a plan
finds what an earlier run of it captured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coldsnap.artifact.canonical import digest
from coldsnap.plan.frames import Scope, fill, is_static, references
from coldsnap.plan.head import Head
from coldsnap.plan.model import Frame, StepNode
from coldsnap.plan.registry import Registry
from coldsnap.plan.values import ExpressionError
from coldsnap.sdk.topology import Unit

FORMAT = 4
KIND = "coldsnap-operation-request"


def resolve_request(
    head: Head, steps: Sequence[StepNode], registry: Registry, names: Scope
) -> tuple[dict[str, Any], str]:
    """The request (JSON) and its digest, ``sha256:...``."""
    launch: dict[str, Any] = {
        "engine": head.engine,
        "model": head.model.model_dump(mode="json") if head.model else None,
        "units": [],
        "execution": {},
    }
    if head.topology is not None:
        launch["units"] = [_unit(index, unit) for index, unit in enumerate(head.topology.units)]
        launch["execution"] = head.topology.execution()
    request = {
        "format": FORMAT,
        "kind": KIND,
        "snapshot_driver": {"id": head.driver},
        "launch": launch,
        "steps": [_step(node, registry, names) for node in steps],
    }
    return request, digest(request)


def _unit(index: int, unit: Unit) -> dict[str, Any]:
    return {
        "id": unit.id,
        "index": index,
        "runtime": unit.runtime,
        "image": unit.image,
        "command": list(unit.command),
        "environment": dict(unit.env),
        "cwd": unit.cwd,
        "device_slots": len(unit.devices),
        "network": unit.network,
        "ports": [{"name": port.name, "inner": port.inner} for port in unit.ports],
        "mounts": [{"target": mount.target, "read_only": mount.read_only} for mount in unit.mounts],
        "caches": list(unit.caches),
        "shm": unit.shm,
    }


def _step(node: StepNode, registry: Registry, names: Scope) -> dict[str, Any]:
    placement = placement_fields(registry, node.type)
    parameters = {
        key: resolved(value, node.frame, names)
        for key, value in node.raw_with.items()
        if key not in placement
    }
    return {"type": node.type, "with": parameters}


def placement_fields(registry: Registry, step_type: str) -> frozenset[str]:
    """Fields of a step type's spec that say where, not what."""
    spec: Any = registry.steps[step_type].spec
    return frozenset(
        info.alias or name
        for name, info in spec.model_fields.items()
        if isinstance(info.json_schema_extra, dict) and info.json_schema_extra.get("placement")
    )


def resolved(raw: Any, frame: Frame, names: Scope) -> Any:
    """`raw` with all that is known at load filled in.

    What is known only later stays as text; inside a template, the inputs that it refers to are
    put beside it, so that it means the same wherever it is read.
    """
    if is_static(raw, frame):
        try:
            return fill(raw, names.names(frame))
        except ExpressionError:
            return raw
    if isinstance(raw, Mapping):
        return {key: resolved(value, frame, names) for key, value in raw.items()}
    if isinstance(raw, (list, tuple)):
        return [resolved(value, frame, names) for value in raw]
    used = sorted({str(ref[1]) for ref, _ in references(raw) if ref[0] == "inputs"})
    if not used or frame.parent is None:
        return raw
    given = {
        name: resolved(frame.inputs[name], frame.parent, names)
        if name in frame.given
        else frame.inputs[name]
        for name in used
    }
    return {"expression": raw, "inputs": given}
