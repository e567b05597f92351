"""Which snapshot driver a unit is captured with, and which features of its host admit it.

A driver that is named is admitted by the host's probe; one that nobody has shown to work runs
with a warning. `auto` takes the first of `PREFERENCE` that the host can do and that is qualified,
and says why it took none of the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coldsnap.artifact.drivers import (
    PREFERENCE,
    QUALIFICATIONS,
    TEMPLATE_FEATURE,
    host_feature,
)
from coldsnap.sdk import ColdSnapError, FactRequest, JobEvent, StepContext, drivers_of
from coldsnap_core.target import checked, host_of, place

PROFILE = "coldsnap_core.facts:HostProfile"
_NOT_SUPPORTED = "the engine does not support it"
Features = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Selection:
    driver: str
    others: tuple[tuple[str, str], ...] = ()
    """(driver, why not) of those that were not taken."""


def driver_of(ctx: StepContext) -> str:
    """The plan's driver; `auto` is `criu` for a unit without devices, else what its host can do.

    Raises:
        ColdSnapError: ``driver.none-fits``.
    """
    if ctx.plan.driver != "auto":
        return ctx.plan.driver
    if ctx.unit is None or not ctx.unit.devices:
        return "criu"
    return select(_features(ctx), ctx.where, _supported(ctx)).driver


def select(
    features: Features, where: str = "", supported: Collection[str] = PREFERENCE
) -> Selection:
    """What `auto` takes for a unit with devices on a host with these features.

    `supported`: drivers that the engine can be captured with.

    What is only not known yet (a host before staging has no CRIU) counts as able.

    Raises:
        ColdSnapError: ``driver.none-fits``.
    """
    taken, others = "", []
    for driver in PREFERENCE:
        reason = _obstacle(driver, features) if driver in supported else _NOT_SUPPORTED
        if not reason and taken:
            reason = f"{taken} comes first"
        if reason:
            others.append((driver, reason))
        else:
            taken = driver
    if taken:
        return Selection(taken, tuple(others))
    able = next((driver for driver in PREFERENCE[1:] if driver in supported), "")
    remedy = str(features.get(f"driver.{able}", {}).get("remedy") or "see coldsnap doctor")
    raise ColdSnapError(
        "driver.none-fits",
        "the unit has devices, and no snapshot driver for them works on this host",
        where,
        details=tuple(f"{driver}: {reason}" for driver, reason in others),
        remedy=remedy if able else "write driver: criu for an engine that leaves CUDA alone",
    )


def driver_feature(ctx: StepContext) -> str:
    """The host feature that the plan's driver needs; of `auto`, what every driver needs."""
    name = ctx.plan.driver
    return host_feature("criu" if name == "auto" else name, has_devices=_has_devices(ctx))


def admits(feature: Mapping[str, Any]) -> bool:
    """Whether a host may be used: it is able, whether or not anybody has shown that it works."""
    return feature.get("status") == "passed" or bool(feature.get("able"))


def told(ctx: StepContext, features: Sequence[Mapping[str, Any]]) -> str:
    """What there is to say of the plan's driver on a host: its choice, or a warning; or nothing."""
    if ctx.plan.driver == "auto":
        if not _has_devices(ctx):
            return ""
        by_id = {str(item["id"]): item for item in features}
        chosen = select(by_id, ctx.where, _supported(ctx))
        others = "; ".join(f"{driver}: {reason}" for driver, reason in chosen.others)
        return f"driver {chosen.driver} ({others})"
    return warning(ctx.plan.driver, has_devices=_has_devices(ctx))


def warning(driver: str, *, has_devices: bool = True) -> str:
    """Empty for a qualified driver, and for a template without devices, which was shown to work."""
    found = QUALIFICATIONS[driver]
    needed = host_feature(driver, has_devices=has_devices)
    if found.state == "qualified" or needed == TEMPLATE_FEATURE:
        return ""
    return f"driver {driver} is unqualified: {found.reason}"


def warn(ctx: StepContext) -> None:
    """Say, where something is about to be changed, that its driver is unqualified."""
    if text := warning(driver_of(ctx), has_devices=_has_devices(ctx)):
        ctx.emit(JobEvent("log", f"warning: {text}"))


def _obstacle(driver: str, features: Features) -> str:
    """Why `auto` does not take it; empty if it may."""
    feature = features.get(f"driver.{driver}", {})
    if feature.get("status") not in {"passed", "unqualified"}:
        return str(feature.get("reason") or "not probed")
    qualification = QUALIFICATIONS[driver]
    if qualification.state != "qualified":
        return f"unqualified: {qualification.reason}"
    return ""


def _has_devices(ctx: StepContext) -> bool:
    topology = ctx.plan.topology
    return any(unit.devices for unit in topology.units) if topology else False


def _supported(ctx: StepContext) -> Collection[str]:
    return PREFERENCE if ctx.engine is None else drivers_of(ctx.engine)


def _features(ctx: StepContext) -> Features:
    profile = checked(ctx, host_of(ctx).ask(FactRequest(PROFILE, place(ctx))))
    return {str(item["id"]): item for item in profile.get("features", ())}
