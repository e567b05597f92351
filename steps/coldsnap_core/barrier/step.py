from __future__ import annotations

from typing import ClassVar

from coldsnap.sdk import (
    Action,
    Change,
    ColdSnapError,
    Outputs,
    Row,
    Seen,
    Step,
    StepContext,
    unchanged,
)
from coldsnap_core.barrier.spec import BarrierSpec


class BarrierStep(Step[BarrierSpec]):
    type = "core.barrier"
    summary = "wait for all participants, with a deadline that names the stragglers"
    spec = BarrierSpec
    read_only = True
    outputs: ClassVar = {"waited": "seconds from the first arrival to the outcome"}

    def observe(self, spec: BarrierSpec, ctx: StepContext) -> Seen:
        del spec
        return {"participants": list(ctx.instances)}

    def diff(self, spec: BarrierSpec, seen: Seen, ctx: StepContext) -> Change:
        participants = len(seen.get("participants", ()))
        if not ctx.run:
            # A preview has nobody to wait for, and a plan with only barriers has nothing to do.
            return unchanged(f"{participants} participants meet")
        row = Row(Action.CHANGE, spec.name, f"{participants} participants")
        return Change(Action.CHANGE, "meet", (row,))

    def apply(self, spec: BarrierSpec, change: Change, ctx: StepContext) -> Outputs:
        del change
        if ctx.barrier is None:
            raise ColdSnapError("barrier.none", "this run serves no barrier", ctx.where)
        name = f"{ctx.step}:{spec.name}"
        outcome = ctx.barrier.arrive(name, ctx.where, ctx.instances or (ctx.where,), spec.deadline)
        if outcome.aborted_by:
            raise ColdSnapError(
                "barrier.aborted",
                f"{outcome.aborted_by} left barrier {spec.name!r}",
                ctx.where,
                details=(outcome.reason,) if outcome.reason else (),
            )
        if outcome.stragglers:
            raise ColdSnapError(
                "barrier.deadline",
                f"barrier {spec.name!r} waited {outcome.waited:.0f} s for "
                f"{', '.join(outcome.stragglers)}",
                ctx.where,
                details=(f"arrived: {', '.join(outcome.arrived)}",),
                remedy="look at the stragglers' steps, or raise the deadline",
            )
        return {"waited": outcome.waited}

    def known(self, spec: BarrierSpec, seen: Seen, ctx: StepContext) -> Outputs:
        del spec, seen, ctx
        return {"waited": 0.0}
