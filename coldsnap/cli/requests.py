"""Format 4 requests as plans: how a manager written for the published contracts drives us.

What a request asks for and this build cannot do is refused by name; nothing is dropped silently.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from coldsnap.artifact.errors import ColdSnapError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coldsnap.artifact.launch import LaunchUnit
    from coldsnap.artifact.receipt import Operation
    from coldsnap.artifact.request import Request
    from coldsnap.plan.templates import Template

OPERATIONS: Final[tuple[Operation, ...]] = ("capture", "restore", "sleep", "wake", "status")
_PASSED_THROUGH: Final = ("ports", "network", "shm", "caches", "cwd")
"""Extensions of a unit that are fields of a plan's unit."""


def read(source: str, operation: str) -> Request:
    """The request in a file, or on stdin for ``-``.

    Raises:
        ColdSnapError: ``request.invalid``, ``request.unsupported``, ``file.*``.
    """
    from coldsnap.artifact.files import read_regular
    from coldsnap.artifact.request import MAX_REQUEST_BYTES, read_request

    if source == "-":
        data = sys.stdin.buffer.read(MAX_REQUEST_BYTES + 1)
    else:
        data = read_regular(Path(source), MAX_REQUEST_BYTES)
    request = read_request(data, operation=operation)
    asked = list(_unsupported(request))
    if asked:
        raise ColdSnapError(
            "request.unsupported",
            f"this build cannot do what the request asks: {asked[0]}",
            details=tuple(asked[1:]),
            remedy="see what it can: coldsnap capabilities",
        )
    return request


def _unsupported(request: Request) -> Iterator[str]:
    policy = request.policy
    if request.operation not in OPERATIONS:
        yield f"/operation {request.operation}"
    if request.lifecycle.activation_state != "running":
        yield f"/lifecycle/activation_state {request.lifecycle.activation_state}"
    if policy.weights.mode != "auto":
        yield f"/policy/weights/mode {policy.weights.mode}"
    if policy.weights.native.staged or policy.weights.native.repository:
        yield "/policy/weights/native"
    if policy.cache.staged:
        yield "/policy/cache/staged"
    if policy.capsule.repository:
        yield "/policy/capsule/repository"
    if not policy.process.kv_discard:
        yield "/policy/process/kv_discard false"


def plan_text(request: Request, template: Template | None) -> str:
    """The plan document that carries the request out; JSON, which is YAML.

    Args:
        request: capture, restore, sleep or wake.
        template: the engine's template for capture and restore.
    """
    launch = request.launch
    execution = launch.execution
    document: dict[str, Any] = {
        "coldsnap": "plan/v1",
        "name": request.id,
        "description": f"request {request.id}: {request.operation}",
        "engine": launch.engine,
        "driver": request.snapshot_driver.id,
        "model": _model(request),
        "units": [_unit(unit) for unit in launch.units],
    }
    for name in ("workers", "groups", "services"):
        items = [_plain(item) for item in getattr(execution, name)]
        if items:
            document[name] = items
    document["steps"] = [_step(request, template)]
    return json.dumps(document, indent=1)


def template_name(request: Request) -> str | None:
    """The engine's template of the operation; None for an operation that is one core step."""
    if request.operation in ("capture", "restore"):
        return f"{request.launch.engine}.{request.operation}"
    return None


def _model(request: Request) -> dict[str, Any]:
    model = request.launch.model
    if model.source == "hf":
        return {"id": model.id, "revision": model.revision, "source": "hf"}
    path = request.extensions.get("model_path") or model.id
    return {"id": model.id, "revision": model.revision, "path": str(path)}


def _unit(unit: LaunchUnit) -> dict[str, Any]:
    value: dict[str, Any] = {"id": unit.id, "hosts": unit.host or "all"}
    if unit.devices:
        value["devices"] = [_ordinal(unit, device) for device in unit.devices]
    if unit.command:
        value["command"] = list(unit.command)
    if unit.environment:
        value["env"] = dict(unit.environment)
    if unit.mounts:
        value["mounts"] = [_plain(mount) for mount in unit.mounts]
    if unit.image:
        value |= {"runtime": "container", "image": unit.image}
    value |= {name: unit.extensions[name] for name in _PASSED_THROUGH if name in unit.extensions}
    return value


def _ordinal(unit: LaunchUnit, device: str) -> int:
    if not device.isdecimal():
        raise ColdSnapError(
            "request.unsupported",
            f"unit {unit.id}: device {device!r} is not an ordinal",
            remedy="name devices by their ordinal on the host",
        )
    return int(device)


def _plain(record: Any) -> dict[str, Any]:
    value: dict[str, Any] = record.to_json()
    return value


def _step(request: Request, template: Template | None) -> dict[str, Any]:
    if template is None:
        return {"id": request.operation, "type": f"core.{request.operation}"}
    inputs: dict[str, Any] = {}
    if request.operation == "capture":
        inputs["name"] = request.output
        prompt = request.validation.prompt
        if prompt and "accept" in template.inputs:
            inputs["accept"] = {"prompts": [prompt]}
        elif prompt and "prompts" in template.inputs:
            inputs["prompts"] = [prompt]
    else:
        inputs["artifact"] = request.artifact
    return {"id": request.operation, "uses": template.name, "with": inputs}


def publish(request: Request, folder: Path, destination: str) -> None:
    """Copy a run's receipt, bound to the request, to a file or (``-``) to stdout.

    Raises:
        ColdSnapError: ``receipt.bound-elsewhere``, ``receipt.invalid``, ``file.*``.
    """
    from dataclasses import replace

    from coldsnap.artifact.receipt import publish_receipt, read_receipt

    receipt = replace(
        read_receipt(folder / "receipt.json"),
        operation_id=request.id,
        operation=request.operation,
        request_sha256=request.sha256,
    )
    if destination == "-":
        sys.stdout.write(json.dumps(receipt.to_json(), indent=2) + "\n")
    else:
        publish_receipt(destination, receipt)
