from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

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
from coldsnap_core.evict.spec import EvictSpec
from coldsnap_core.target import command
from coldsnap_core.units import Generation, chosen, generations, observe_unit, status_question


class Evict(Step[EvictSpec]):
    type = "core.evict"
    summary = "stop the generations that an accepted one replaces"
    spec = EvictSpec
    reversible = False
    outputs: ClassVar = {"stopped": "numbers of the stopped generations"}

    def reads(self, spec: EvictSpec, ctx: StepContext) -> Sequence[FactRequest]:
        del spec
        return (status_question(ctx),)

    def observe(self, spec: EvictSpec, ctx: StepContext) -> Seen:
        del spec
        return observe_unit(ctx)

    def diff(self, spec: EvictSpec, seen: Seen, ctx: StepContext) -> Change:
        doomed = _doomed(spec, seen)
        if not doomed:
            return unchanged("nothing to stop")
        survivor = chosen(seen, spec.generation) if spec.keep == "newest" else None
        if ctx.run and survivor is not None and survivor.state != "serving":
            raise ColdSnapError(
                "evict.replacement-not-serving",
                f"generation {survivor.number} is {survivor.state}; nothing was stopped",
                ctx.where,
                remedy="accept and expose the replacement first",
            )
        rows = tuple(
            Row(Action.STOP, "unit", f"generation {item.number}, {item.state}") for item in doomed
        )
        pauses = spec.keep == "none" and any(item.exposed for item in doomed)
        return Change(Action.STOP, "stop", rows, pauses_serving=pauses)

    def foresee(self, ctx: StepContext) -> Change | None:
        """Of a replacement that is to come: all that lives now goes."""
        doomed = _not_stopped(observe_unit(ctx))
        rows = tuple(
            Row(Action.STOP, "unit", f"generation {item.number}, {item.state}, once replaced")
            for item in doomed
        )
        return Change(Action.STOP, "stop", rows) if rows else unchanged("nothing to stop")

    def apply(self, spec: EvictSpec, change: Change, ctx: StepContext) -> Outputs:
        del change
        stopped = []
        for generation in _doomed(spec, observe_unit(ctx)):
            request = {"generation": generation.number, "grace": spec.grace}
            command(ctx, "unit.stop", request, phase=str(generation.number))
            stopped.append(generation.number)
        return {"stopped": stopped}

    def known(self, spec: EvictSpec, seen: Seen, ctx: StepContext) -> Outputs:
        del spec, seen, ctx
        return {"stopped": []}


def _doomed(spec: EvictSpec, seen: Seen) -> list[Generation]:
    found = _not_stopped(seen)
    if spec.keep == "none":
        return found
    survivor = chosen(seen, spec.generation)
    return [item for item in found if survivor is not None and item.number < survivor.number]


def _not_stopped(seen: Seen) -> list[Generation]:
    """Newest first. One that crashed still holds its image and the store's pin."""
    return [item for item in generations(seen) if item.is_live or item.state == "dead"]
