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
    Seen,
    Step,
    StepContext,
    unchanged,
)
from coldsnap_core.captures import short, size
from coldsnap_core.status.spec import StatusSpec
from coldsnap_core.target import ask, store_path
from coldsnap_core.units import LIVE, status_question

_KEPT = ("generation", "state", "engine", "artifact", "exposed", "since", "rss_bytes", "gpu_bytes")


class Status(Step[StatusSpec]):
    type = "core.status"
    summary = "what runs of the unit: state, driver, artifact, memory, provider, last results"
    spec = StatusSpec
    read_only = True
    outputs: ClassVar = {
        "generations": "generation, state, engine, driver, artifact, exposed, since, rss_bytes, "
        "gpu_bytes, ports, provider, hydration_seconds, first_token_seconds, same; newest first",
        "state": "of the newest live one; empty if none is",
    }

    def reads(self, spec: StatusSpec, ctx: StepContext) -> Sequence[FactRequest]:
        del spec
        return (status_question(ctx, details=True),)

    def observe(self, spec: StatusSpec, ctx: StepContext) -> Seen:
        del spec
        request = {"unit": ctx.unit.id if ctx.unit else None, "details": True}
        rows = ask(ctx, "unit.status", request).get("units") or []
        found = [_told(row) for row in rows if row.get("state") in LIVE]
        for item in found:
            item["driver"] = _driver(str(item["artifact"] or ""), ctx)
        return {"generations": sorted(found, key=lambda item: -int(item["generation"]))}

    def diff(self, spec: StatusSpec, seen: Seen, ctx: StepContext) -> Change:
        found = seen["generations"]
        states = {str(item["state"]) for item in found}
        is_fine = {"nothing": True, "running": bool(found), "serving": "serving" in states}
        if not is_fine[spec.demand]:
            raise ColdSnapError(
                "status.not-serving",
                f"no generation of the unit is {spec.demand}",
                ctx.where,
                details=tuple(row.detail for row in map(_row, found)),
                remedy="start it, restore it, or wake it",
            )
        return unchanged(_summary(found), *map(_row, found))

    def apply(self, spec: StatusSpec, change: Change, ctx: StepContext) -> Outputs:
        del change
        return self.known(spec, self.observe(spec, ctx), ctx)

    def known(self, spec: StatusSpec, seen: Seen, ctx: StepContext) -> Outputs:
        del spec, ctx
        found = list(seen["generations"])
        return {"generations": found, "state": found[0]["state"] if found else ""}


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    hydrated, accepted = row.get("hydrated") or {}, row.get("accepted") or {}
    spans = (hydrated.get("timing") or {}).get("spans") or []
    seconds = next((s["duration_seconds"] for s in spans if s.get("name") == "hydrate"), None)
    return {
        **{name: row.get(name) for name in _KEPT},
        "ports": [f"{p['host']}:{p['port']}" for p in row.get("ports") or []],
        "provider": hydrated.get("provider"),
        "hydration_seconds": seconds,
        "first_token_seconds": accepted.get("first_token_seconds"),
        "same": accepted.get("compared"),
    }


def _driver(artifact: str, ctx: StepContext) -> str:
    """Snapshot driver of the artifact that it was restored from; empty after a cold start."""
    if not artifact:
        return ""
    try:
        found = ask(ctx, "store.resolve", {"store": store_path(ctx), "ref": artifact})
    except ColdSnapError:
        return ""  # the artifact is gone or damaged, the engine is not
    described = found.get("descriptor") or {}
    return str((described.get("snapshot_driver") or {}).get("id") or "")


def _summary(found: Sequence[Mapping[str, Any]]) -> str:
    if not found:
        return "nothing runs"
    return ", ".join(f"generation {item['generation']} is {item['state']}" for item in found)


def _row(item: Mapping[str, Any]) -> Row:
    parts = [f"generation {item['generation']}", str(item["state"])]
    if item.get("artifact"):
        parts.append(f"{item.get('driver') or 'restored'} {short(str(item['artifact']))}")
    parts.append(f"{size(int(item.get('rss_bytes') or 0))} host")
    if item.get("gpu_bytes"):
        parts.append(f"{size(int(item['gpu_bytes']))} GPU")
    used = (item.get("provider") or {}).get("used")
    parts += [f"weights {used}"] if used else []
    if item.get("first_token_seconds") is not None:
        parts.append(f"first token {item['first_token_seconds']:.2f} s")
    return Row(Action.NONE, "unit", "  ".join(parts))
