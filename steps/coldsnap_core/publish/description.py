"""The descriptor of an artifact (format 9) from what the steps of a capture gave.

Field names and rules: docs/formats.md. What ColdSnap adds to the published format stands under
``extensions``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coldsnap.artifact.decode import encode
from coldsnap.artifact.descriptor import complete
from coldsnap.artifact.drivers import DRIVERS
from coldsnap.sdk import ColdSnapError, StepContext
from coldsnap_core.captures import request_sha256
from coldsnap_core.drivers import driver_of
from coldsnap_core.launching import launch_body, launch_of, model_of, unit_of
from coldsnap_core.publish.spec import PublishSpec

_NOTES = {
    "cuda": "cuda",
    "cold-start": "cold_start",
    "model-files": "model_files",
    "process-image": "process_image",
    "template": "template",
}
"""Note of the descriptor -> field of what core.checkpoint told."""
_UNIT_EXTENSIONS = ("network", "ports", "shm", "caches", "runtime", "inside", "cwd", "io_uring")


def describe(spec: PublishSpec, ctx: StepContext) -> dict[str, Any]:
    """The descriptor of one unit's capture, checked, as JSON.

    Raises:
        ColdSnapError: ``publish.driver-differs``, ``driver.*``, ``artifact.invalid``.
    """
    capture = spec.capture or {}
    driver = _driver(capture, ctx)
    draft = {
        "capture_id": str(capture.get("capture_id") or f"{spec.name}.{ctx.run}"),
        "request_sha256": request_sha256(ctx),
        "snapshot_driver": encode(DRIVERS[driver]),
        "requires": {"features": [{"id": i} for i in DRIVERS[driver].base_requirements]},
        "launch": _launch(ctx),
        "compatibility": _compatibility(spec, capture, ctx),
        "capsule": {"objects": list(capture.get("objects") or [])},
        "weights": _weights(capture, driver, ctx),
        "acceptance": {
            "accepted": True,
            "expected": str(spec.answers[0].get("text", "")) if spec.answers else "",
        },
        "extensions": _extensions(spec, capture),
        **_graph(ctx),
    }
    described: dict[str, Any] = encode(complete(draft))
    return described


def _graph(ctx: StepContext) -> dict[str, Any]:
    """How the artifact keeps CUDA graphs, of an engine that has any."""
    policy = launch_of(ctx).graphs
    if not policy:
        return {}
    decision = "requested_policy_is_supported"
    wanted = {"policy_requested": policy, "policy_effective": policy, "decision": decision}
    return {"graph": wanted}


def _driver(capture: Mapping[str, Any], ctx: StepContext) -> str:
    """What was captured decides: a tree with CUDA state is never one of `criu`.

    Raises:
        ColdSnapError: ``publish.driver-differs``.
    """
    state = capture.get("cuda") or capture.get("template") or {}
    captured = str(state.get("snapshot_driver") or "criu")
    wanted = driver_of(ctx)
    if captured != wanted:
        raise ColdSnapError(
            "publish.driver-differs",
            f"the plan says driver {wanted}, and the unit was captured with {captured}",
            ctx.where,
            cause="the unit has no CUDA state" if captured == "criu" else "the unit uses a GPU",
            remedy=f"write driver: {captured}",
        )
    return captured


def _launch(ctx: StepContext) -> dict[str, Any]:
    body = launch_body(ctx)
    unit, model, launch = unit_of(ctx), model_of(ctx), body["launch"]
    return {
        "engine": body["engine"],
        "model": {
            "id": model.id or body["engine"],
            "revision": model.revision,
            "source": model.source,
        },
        "units": [
            {
                "id": unit.id,
                "index": 0,
                "devices": [str(device) for device in unit.devices],
                "image": unit.image,
                "command": launch["argv"],
                "environment": launch["env"],
                "mounts": launch["mounts"],
                "extensions": {key: launch[key] for key in _UNIT_EXTENSIONS},
            }
        ],
        "execution": _execution(ctx),
    }


def _execution(ctx: StepContext) -> dict[str, Any]:
    """Topology of a plan with one unit; of several units each artifact stands for itself."""
    topology = ctx.plan.topology
    if topology is None or len(topology.units) != 1:
        return {}
    return topology.execution()


def _identity(spec: PublishSpec) -> Mapping[str, Any]:
    identity: Mapping[str, Any] = (spec.profile or {}).get("identity") or {}
    return identity


def _compatibility(
    spec: PublishSpec, capture: Mapping[str, Any], ctx: StepContext
) -> dict[str, Any]:
    identity = _identity(spec)
    cuda = capture.get("cuda") or (capture.get("template") or {}).get("cuda") or {}
    unit: dict[str, Any] = {
        "unit": unit_of(ctx).id,
        "architecture": str(identity.get("architecture") or ""),
        "kernel": str(identity.get("kernel") or ""),
    }
    if cuda:
        floor = DRIVERS[str(cuda["snapshot_driver"])].minimum_nvidia_driver_major
        unit |= {
            "nvidia_driver_captured": str(cuda.get("nvidia_driver") or ""),
            "nvidia_driver_min": str(floor),
            "devices": [
                {
                    "slot": slot,
                    "gpu_name": gpu["name"],
                    "compute_capability": gpu["compute_capability"],
                }
                for slot, gpu in enumerate(cuda.get("gpus") or ())
            ],
        }
    return {"units": [unit]}


def _weights(capture: Mapping[str, Any], driver: str, ctx: StepContext) -> dict[str, Any]:
    model = model_of(ctx)
    weights: dict[str, Any] = {
        "recovery": {
            "source": "huggingface-safetensors" if model.source == "hf" else "safetensors",
            "model_id": model.id or launch_body(ctx)["engine"],
            "revision": model.revision,
            "snapshot_driver": driver,
        }
    }
    if payloads := capture.get("payloads"):
        weights["model_payloads"] = {"objects": list(payloads)}
    return weights


def _extensions(spec: PublishSpec, capture: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "answers": list(spec.answers),
        "cold_start_seconds": spec.cold_start_seconds,
        "cpu_flags": sorted((_identity(spec).get("cpu") or {}).get("flags") or ()),
        "sizes": capture.get("sizes") or {},
        "processes": capture.get("processes") or [],
        "mapped_files": capture.get("mapped_files") or [],
        "notes": {
            name: dict(capture[field]) for name, field in _NOTES.items() if capture.get(field)
        },
    }
