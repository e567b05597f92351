"""Which snapshot driver a unit is captured with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coldsnap.sdk import ColdSnapError, FactRequest, StepContext
from coldsnap_core.target import checked, host_of, place

PROFILE = "coldsnap_core.facts:HostProfile"
BUILT = ("criu", "c580", "n580")
"""Those that these steps can capture with. `auto` never takes another one."""


def driver_of(ctx: StepContext) -> str:
    """The plan's driver; `auto` is `criu` for a unit without devices, else what its host can do.

    Raises:
        ColdSnapError: ``driver.not-built``, ``driver.none-fits``.
    """
    name = ctx.plan.driver
    if name == "auto":
        return _automatic(ctx)
    if name not in BUILT:
        raise ColdSnapError(
            "driver.not-built",
            f"snapshot driver {name} cannot be captured with yet",
            ctx.where,
            remedy=f"write driver: auto, or one of {', '.join(BUILT)}",
        )
    return name


def driver_feature(ctx: StepContext) -> str:
    """The host feature that the plan's driver needs; of `auto`, what every driver needs.

    A template is a process without CUDA: where no unit has devices, nothing of NVIDIA is needed.
    """
    name = ctx.plan.driver
    topology = ctx.plan.topology
    has_devices = any(unit.devices for unit in topology.units) if topology else False
    if name == "n580" and not has_devices:
        return "criu-process-template"
    return f"driver.{'criu' if name == 'auto' else name}"


def _automatic(ctx: StepContext) -> str:
    if ctx.unit is None or not ctx.unit.devices:
        return "criu"
    profile = checked(ctx, host_of(ctx).ask(FactRequest(PROFILE, place(ctx))))
    features = {str(item["id"]): item for item in profile.get("features", ())}
    if _status(features, "c580") in {"passed", "unqualified"}:
        return "c580"
    reason = features.get("driver.c580", {})
    raise ColdSnapError(
        "driver.none-fits",
        f"unit {ctx.unit.id} has devices, and no snapshot driver for them works on this host",
        ctx.where,
        details=(f"c580: {reason.get('reason') or 'not probed'}",),
        remedy=str(reason.get("remedy") or "see coldsnap doctor"),
    )


def _status(features: Mapping[str, Mapping[str, Any]], driver: str) -> str:
    return str(features.get(f"driver.{driver}", {}).get("status") or "failed")
