from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
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
from coldsnap_core.hydrate.spec import HydrateSpec
from coldsnap_core.launching import calls, engine_of, unit_of
from coldsnap_core.target import command
from coldsnap_core.units import chosen, observe_unit, status_question


class Hydrate(Step[HydrateSpec]):
    type = "core.hydrate"
    summary = "bring model bytes back into a restored engine, verified on the way"
    spec = HydrateSpec
    outputs: ClassVar = {"bytes": "payload bytes", "timing": "spans"}

    def reads(self, spec: HydrateSpec, ctx: StepContext) -> Sequence[FactRequest]:
        del spec
        return (status_question(ctx),)

    def observe(self, spec: HydrateSpec, ctx: StepContext) -> Seen:
        del spec
        return observe_unit(ctx)

    def diff(self, spec: HydrateSpec, seen: Seen, ctx: StepContext) -> Change:
        generation = chosen(seen, spec.generation)
        if generation is not None and generation.state in {"hydrated", "serving"}:
            return unchanged(f"generation {generation.number} has its model bytes")
        if generation is None and ctx.run:
            raise ColdSnapError("unit.not-running", "no generation of the unit runs", ctx.where)
        action = Action.UNKNOWN if generation is None else Action.CHANGE
        row = Row(action, "payload", "model bytes and KV back, digests checked")
        return Change(action, "hydrate", (row,))

    def apply(self, spec: HydrateSpec, change: Change, ctx: StepContext) -> Outputs:
        del change
        engine = engine_of(ctx)
        ready = asdict(engine.ready(unit_of(ctx)))
        ready["retry_seconds"] = spec.ready_timeout
        request: dict[str, Any] = {"calls": calls(engine.hydrate()), "ready": ready}
        if spec.generation is not None:
            request["generation"] = spec.generation
        return command(ctx, "unit.hydrate", request)

    def known(self, spec: HydrateSpec, seen: Seen, ctx: StepContext) -> Outputs:
        del spec, seen, ctx
        return {"bytes": 0, "timing": None}
