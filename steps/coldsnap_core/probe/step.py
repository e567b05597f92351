from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from coldsnap.sdk import (
    Action,
    Change,
    ColdSnapError,
    FactRequest,
    Outputs,
    Row,
    Scope,
    Seen,
    Step,
    StepContext,
    unchanged,
)
from coldsnap_core.drivers import admits, driver_feature, told
from coldsnap_core.probe.spec import ProbeSpec
from coldsnap_core.target import checked, host_of, place

_FACT = "coldsnap_core.facts:HostProfile"
_STABLE = ("id", "status", "reason", "remedy")


class Probe(Step[ProbeSpec]):
    type = "core.probe"
    summary = "find out what the host can do, and refuse it with a reason if it is not enough"
    spec = ProbeSpec
    scope = Scope.HOST
    read_only = True
    outputs: ClassVar = {"profile": "host feature profile", "abilities": "feature id -> status"}

    def reads(self, spec: ProbeSpec, ctx: StepContext) -> Sequence[FactRequest]:
        del spec
        return (FactRequest(_FACT, place(ctx)),)

    def observe(self, spec: ProbeSpec, ctx: StepContext) -> Seen:
        profile = checked(ctx, host_of(ctx).ask(self.reads(spec, ctx)[0]))
        # What this plan does not need may come and go without making a saved plan stale.
        needed = set(_needed(spec, ctx))
        features = [
            {
                **{key: feature.get(key, "") for key in _STABLE},
                # Of a snapshot driver: the host can do it, only nobody has shown that it works.
                **({"able": True} if (feature.get("evidence") or {}).get("able") else {}),
            }
            for feature in profile.get("features", ())
            if str(feature.get("id", "")).startswith("driver.") or feature.get("id") in needed
        ]
        return {"identity": profile.get("identity", {}), "features": features}

    def diff(self, spec: ProbeSpec, seen: Seen, ctx: StepContext) -> Change:
        features = {str(item["id"]): item for item in seen.get("features", ())}
        needed = _needed(spec, ctx)
        if not spec.admit:
            return unchanged(_summary(features))
        missing = [name for name in needed if not admits(features.get(name, {}))]
        # A bare host has no CRIU before core.stage ran: that is not a refusal yet.
        unsure = [name for name in missing if _status(features, name) == "unqualified"]
        if missing and not ctx.run and unsure == missing:
            rows = tuple(Row(Action.UNKNOWN, name, "(known after apply)") for name in unsure)
            return Change(Action.UNKNOWN, "abilities are known after staging", rows)
        if missing:
            raise _refusal(features, missing, ctx)
        return unchanged(_summary(features, told(ctx, list(features.values()))))

    def apply(self, spec: ProbeSpec, change: Change, ctx: StepContext) -> Outputs:
        """Nothing to change: what was unknown in a preview is observed again here."""
        del change
        seen = self.observe(spec, ctx)
        self.diff(spec, seen, ctx)
        return self.known(spec, seen, ctx)

    def known(self, spec: ProbeSpec, seen: Seen, ctx: StepContext) -> Outputs:
        del spec, ctx
        abilities = {str(item["id"]): item["status"] for item in seen.get("features", ())}
        return {"profile": dict(seen), "abilities": abilities}


def _needed(spec: ProbeSpec, ctx: StepContext) -> list[str]:
    """Of a plan that leaves the driver open, what every one needs: `driver_of` asks for more."""
    return [*spec.require, driver_feature(ctx)]


def _status(features: Mapping[str, Any], name: str) -> str:
    return str(features[name]["status"]) if name in features else "unqualified"


def _summary(features: Mapping[str, Any], more: str = "") -> str:
    passed = sum(1 for item in features.values() if item["status"] == "passed")
    counted = f"{passed} of {len(features)} abilities"
    return f"{counted}; {more}" if more else counted


def _refusal(features: Mapping[str, Any], missing: list[str], ctx: StepContext) -> ColdSnapError:
    first = features.get(missing[0], {})
    details = tuple(
        f"{name}: {_status(features, name)}: {features.get(name, {}).get('reason') or 'not probed'}"
        for name in missing
    )
    return ColdSnapError(
        "probe.not-able",
        f"the host lacks {', '.join(missing)}",
        ctx.where,
        details=details,
        remedy=str(first.get("remedy") or "see coldsnap doctor for what it lacks"),
    )
