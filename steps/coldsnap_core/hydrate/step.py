from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from coldsnap.sdk import (
    Action,
    Change,
    FactRequest,
    Outputs,
    Row,
    Seen,
    Step,
    StepContext,
    unchanged,
)
from coldsnap_core.hydrate.request import hydration
from coldsnap_core.hydrate.spec import HydrateSpec
from coldsnap_core.target import command
from coldsnap_core.units import acted_on, detail, named, observe_unit, status_question

_BACK = "model bytes and KV back, checked"


class Hydrate(Step[HydrateSpec]):
    type = "core.hydrate"
    summary = "bring model bytes back into a restored engine, verified on the way"
    spec = HydrateSpec
    outputs: ClassVar = {
        "bytes": "payload bytes",
        "provider": "policy, used (native, recovery or image), faults[provider, code, reason]",
        "timing": "spans",
    }

    def reads(self, spec: HydrateSpec, ctx: StepContext) -> Sequence[FactRequest]:
        del spec
        return (status_question(ctx, details=True),)

    def observe(self, spec: HydrateSpec, ctx: StepContext) -> Seen:
        del spec
        return observe_unit(ctx, detail="hydrated")

    def diff(self, spec: HydrateSpec, seen: Seen, ctx: StepContext) -> Change:
        generation = acted_on(seen, spec.generation, ctx)
        if generation is not None and generation.state in {"hydrated", "serving"}:
            return unchanged(f"generation {generation.number} has its model bytes")
        action = Action.UNKNOWN if generation is None else Action.CHANGE
        row = Row(action, "payload", _BACK)
        return Change(action, "hydrate", (row,))

    def foresee(self, ctx: StepContext) -> Change | None:
        """Of a generation that is to come: it gets its model bytes, by this step or before it."""
        del ctx
        return Change(Action.CHANGE, "hydrate", (Row(Action.CHANGE, "payload", _BACK),))

    def apply(self, spec: HydrateSpec, change: Change, ctx: StepContext) -> Outputs:
        del change
        request = hydration(ctx, spec.ready_timeout) | named(spec.generation)
        if spec.provider is not None:
            request["provider"] = spec.provider
        return command(ctx, "unit.hydrate", request)

    def known(self, spec: HydrateSpec, seen: Seen, ctx: StepContext) -> Outputs:
        """What the job said that did it, such as a restore that went on by itself."""
        del ctx
        done = detail(seen, spec.generation, "hydrated")
        kept = {name: done.get(name) for name in ("provider", "timing")}
        return {"bytes": done.get("bytes", 0), **kept}
