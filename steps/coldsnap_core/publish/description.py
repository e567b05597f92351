"""The descriptor of an artifact (format 9) from what the steps of a capture gave.

Field names and rules: docs/formats.md. What ColdSnap adds to the published format stands under
``extensions``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coldsnap.sdk import ColdSnapError, StepContext
from coldsnap_core.captures import request_sha256
from coldsnap_core.launching import launch_body, model_of, unit_of
from coldsnap_core.publish.spec import PublishSpec

_DRIVERS = {
    "criu": {
        "id": "criu",
        "abi": 1,
        "capture_boundary": "live-cpu-process-tree",
        "minimum_nvidia_driver_major": 0,
        "base_requirements": ["criu-process-tree"],
    },
}


def describe(spec: PublishSpec, ctx: StepContext) -> dict[str, Any]:
    """The descriptor without what the store fills in.

    Raises:
        ColdSnapError: ``publish.driver-unsupported``.
    """
    capture = spec.capture or {}
    driver = _driver(ctx)
    return {
        "format": 9,
        "kind": "coldsnap-snapshot-artifact",
        "state": "committed",
        "capture_id": str(capture.get("capture_id") or f"{spec.name}.{ctx.run}"),
        "request_sha256": request_sha256(ctx),
        "snapshot_driver": driver,
        "requires": {
            "format": 1,
            "features": [{"id": name} for name in driver["base_requirements"]],
        },
        "launch": _launch(ctx),
        "compatibility": _compatibility(spec, ctx),
        "capsule": {"images": [], "objects": list(capture.get("objects") or [])},
        "runtime": {"bindings": []},
        "graph": None,
        "weights": _weights(capture, ctx),
        "acceptance": {
            "accepted": True,
            "expected": str(spec.answers[0].get("text", "")) if spec.answers else "",
        },
        "extensions": _extensions(spec, capture),
    }


def _driver(ctx: StepContext) -> dict[str, Any]:
    name = "criu" if ctx.plan.driver == "auto" else ctx.plan.driver
    if name not in _DRIVERS:
        raise ColdSnapError(
            "publish.driver-unsupported",
            f"snapshot driver {name} cannot be captured by these steps",
            ctx.where,
            remedy="set driver: criu",
        )
    return _DRIVERS[name]


def _launch(ctx: StepContext) -> dict[str, Any]:
    body = launch_body(ctx)
    unit, model = unit_of(ctx), model_of(ctx)
    launch = body["launch"]
    return {
        "engine": body["engine"],
        "model": {"id": model.id, "revision": model.revision, "source": model.source},
        "units": [
            {
                "id": unit.id,
                "index": 0,
                "host": "",
                "devices": [str(device) for device in unit.devices],
                "image": unit.image,
                "image_digest": "",
                "command": launch["argv"],
                "environment": launch["env"],
                "mounts": launch["mounts"],
            }
        ],
        "execution": _execution(ctx),
    }


def _execution(ctx: StepContext) -> dict[str, Any]:
    topology = ctx.plan.topology
    if topology is None:
        return {}
    return {
        "workers": [worker.model_dump(mode="json") for worker in topology.workers],
        "groups": [group.model_dump(mode="json") for group in topology.groups],
        "services": [service.model_dump(mode="json") for service in topology.services],
    }


def _compatibility(spec: PublishSpec, ctx: StepContext) -> dict[str, Any]:
    identity = (spec.profile or {}).get("identity") or {}
    return {
        "policy": "placement-independent-v1",
        "units": [
            {
                "unit": unit_of(ctx).id,
                "architecture": str(identity.get("architecture") or ""),
                "kernel": str(identity.get("kernel") or ""),
                "nvidia_driver_captured": "",
                "nvidia_driver_min": "",
                "cuda_userspace": "",
                "devices": [],
            }
        ],
    }


def _weights(capture: Mapping[str, Any], ctx: StepContext) -> dict[str, Any]:
    model = model_of(ctx)
    weights: dict[str, Any] = {
        "recovery": {
            "source": "safetensors",
            "model_id": model.id,
            "revision": model.revision,
            "snapshot_driver": "criu",
            "load_path": "",
            "replay_plan": [],
        }
    }
    if payloads := capture.get("payloads"):
        weights["model_payloads"] = {"objects": list(payloads)}
    return weights


def _extensions(spec: PublishSpec, capture: Mapping[str, Any]) -> dict[str, Any]:
    identity = (spec.profile or {}).get("identity") or {}
    return {
        "answers": list(spec.answers),
        "cold_start_seconds": spec.cold_start_seconds,
        "cpu_flags": sorted((identity.get("cpu") or {}).get("flags") or ()),
        "sizes": capture.get("sizes") or {},
        "processes": capture.get("processes") or [],
        "mapped_files": capture.get("mapped_files") or [],
    }
