from __future__ import annotations

from collections.abc import Sequence
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
from coldsnap.sdk.engine import ExportingEngine
from coldsnap_core.captures import short
from coldsnap_core.launching import calls, engine_of
from coldsnap_core.materialize.spec import MaterializeSpec
from coldsnap_core.target import command, store_path
from coldsnap_core.units import acted_on, chosen, detail, named, observe_unit, status_question


class Materialize(Step[MaterializeSpec]):
    type = "core.materialize"
    summary = "write the weights of a recovered unit as a native payload beside its artifact"
    spec = MaterializeSpec
    reversible = False
    outputs: ClassVar = {
        "artifact": "digest of the manifest with the payload; null while a job builds it",
        "bytes_added": "bytes that were not in the store",
        "job": "id of the job that goes on, of mode async",
        "timing": "spans",
    }

    def reads(self, spec: MaterializeSpec, ctx: StepContext) -> Sequence[FactRequest]:
        del spec
        return (status_question(ctx, details=True),)

    def observe(self, spec: MaterializeSpec, ctx: StepContext) -> Seen:
        del spec
        return observe_unit(ctx, detail="hydrated")

    def diff(self, spec: MaterializeSpec, seen: Seen, ctx: StepContext) -> Change:
        if spec.mode == "off":
            return unchanged("off")
        generation = acted_on(seen, spec.generation, ctx)
        used = (detail(seen, spec.generation, "hydrated").get("provider") or {}).get("used")
        if used in {"native", "image"} or (generation is not None and not generation.artifact):
            return unchanged(_why(used))
        if not isinstance(engine_of(ctx), ExportingEngine):
            raise ColdSnapError(
                "materialize.unsupported",
                f"engine {engine_of(ctx).name} cannot write a payload while it serves",
                ctx.where,
                remedy="set materialize: off; a new capture writes one, too",
            )
        action = Action.UNKNOWN if generation is None else Action.CREATE
        later = ", after the run" if spec.mode == "async" else ""
        row = Row(
            action, "payload", f"of {short(generation.artifact) if generation else ''}{later}"
        )
        return Change(action, "write the weights as a native payload", (row,))

    def apply(self, spec: MaterializeSpec, change: Change, ctx: StepContext) -> Outputs:
        del change
        engine = engine_of(ctx)
        assert isinstance(engine, ExportingEngine)  # noqa: S101  (diff said so)
        request: dict[str, Any] = {"store": store_path(ctx), "calls": calls(engine.export())}
        request |= named(spec.generation)
        if spec.mode == "async":
            request["detach"] = True
        done = command(ctx, "unit.materialize", request)
        kept = {name: done.get(name) for name in ("bytes_added", "job", "timing")}
        return {"artifact": done.get("manifest"), **kept}

    def known(self, spec: MaterializeSpec, seen: Seen, ctx: StepContext) -> Outputs:
        del ctx
        generation = chosen(seen, spec.generation)
        artifact = generation.artifact if generation else None
        return {"artifact": artifact or None, "bytes_added": 0, "job": None, "timing": None}


def _why(used: object) -> str:
    if used == "native":
        return "its weights came from a native payload"
    return "its weights are in the process image" if used == "image" else "it was started cold"
