"""From the plan's unit and the engine's answer to the launch request of the runtime pack."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from coldsnap.artifact.canonical import digest
from coldsnap.sdk import ColdSnapError, Engine, Launch, Model, StepContext, Unit
from coldsnap_core.drivers import driver_of
from coldsnap_core.target import host_of, place

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


def engine_of(ctx: StepContext) -> Engine:
    if ctx.engine is None:
        raise ColdSnapError(
            "plan.no-engine",
            f"step {ctx.step} needs an engine, and the plan names none",
            ctx.where,
            remedy="write engine: at the top of the plan",
        )
    return ctx.engine


def unit_of(ctx: StepContext) -> Unit:
    if ctx.unit is None:
        raise ColdSnapError("internal.no-unit", f"step {ctx.step} has no unit")
    return ctx.unit


def model_of(ctx: StepContext) -> Model:
    return ctx.plan.model or Model(id="")


def launch_of(ctx: StepContext, *, plain: bool = False) -> Launch:
    """What the engine says of its start on this host."""
    driver = driver_of(ctx)
    if plain and driver == "n580":
        driver = "c580" if unit_of(ctx).devices else "criu"
    host_vars = {**host_of(ctx).vars, **place(ctx), "snapshot_driver": driver}
    return engine_of(ctx).launch(unit_of(ctx), model_of(ctx), host_vars)


def launch_body(ctx: StepContext, *, plain: bool = False) -> dict[str, Any]:
    """Request of ``unit.launch`` without what differs per run; JSON values only.

    `plain`: the engine itself, where the plan's driver would start a template of it.
    """
    engine, unit, model = engine_of(ctx), unit_of(ctx), model_of(ctx)
    launch = launch_of(ctx, plain=plain)
    return {
        "engine": engine.name,
        "model": model.model_dump(),
        "launch": {
            "argv": list(launch.argv),
            "env": {**launch.env, **_device_environment(unit), **unit.env},
            "cwd": unit.cwd,
            "inside": list(launch.inside),
            "caches": [*launch.caches, *unit.caches],
            "mounts": mounts_of(ctx),
            "network": unit.network,
            "ports": [port.model_dump() for port in unit.ports],
            "shm": unit.shm,
            "runtime": unit.runtime,
            "image": unit.image,
            "io_uring": "deny",
            # Only where it is asked for: the identity of other launches stays what it was.
            **({"memory_guard": True} if unit.memory_guard else {}),
            **({"preload": list(unit.preload)} if unit.preload else {}),
            **({"template": True} if launch.template else {}),
        },
        "ready": asdict(engine.ready(unit)),
        "phases": [list(phase) for phase in launch.phases],
        # Placement: not part of what identifies a launch.
        **({"device_share": launch.device_share} if launch.device_share else {}),
    }


def _device_environment(unit: Unit) -> dict[str, str]:
    """The unit sees its own GPUs only, numbered as NVML does."""
    if not unit.devices:
        return {}
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        VISIBLE_DEVICES: ",".join(str(device) for device in unit.devices),
    }


def mounts_of(ctx: StepContext) -> list[dict[str, Any]]:
    """The unit's mounts, and the model's folder where it has one, read-only at its own path."""
    model = model_of(ctx)
    mounts = [mount.model_dump() for mount in unit_of(ctx).mounts]
    if model.path:
        mounts.append({"source": model.path, "target": model.path, "read_only": True})
    return mounts


def launch_sha256(body: dict[str, Any]) -> str:
    """Digest of what identifies a launch: all but the placement of ports, mounts and devices."""
    launch = dict(body["launch"])
    launch["ports"] = [{"name": p["name"], "inner": p["inner"]} for p in launch["ports"]]
    launch["env"] = {k: v for k, v in launch["env"].items() if k != VISIBLE_DEVICES}
    launch["mounts"] = [{k: v for k, v in m.items() if k != "source"} for m in launch["mounts"]]
    return digest({"engine": body["engine"], "model": body["model"], "launch": launch})


def calls(items: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [asdict(item) for item in items]
