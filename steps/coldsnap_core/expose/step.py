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
from coldsnap_core.expose.spec import ExposeSpec
from coldsnap_core.launching import unit_of
from coldsnap_core.target import command
from coldsnap_core.units import acted_on, live, named, observe_unit, status_question


class Expose(Step[ExposeSpec]):
    type = "core.expose"
    summary = "publish the ports of an accepted generation on the host"
    spec = ExposeSpec
    outputs: ClassVar = {"ports": "published ports"}

    def reads(self, spec: ExposeSpec, ctx: StepContext) -> Sequence[FactRequest]:
        del spec
        return (status_question(ctx),)

    def observe(self, spec: ExposeSpec, ctx: StepContext) -> Seen:
        del spec
        return observe_unit(ctx)

    def diff(self, spec: ExposeSpec, seen: Seen, ctx: StepContext) -> Change:
        generation = acted_on(seen, spec.generation, ctx)
        ports = _ports(ctx)
        if generation is not None and generation.exposed:
            return unchanged(f"generation {generation.number} has {ports}")
        return _moved(seen, ctx)

    def foresee(self, ctx: StepContext) -> Change | None:
        """Of a generation that is to come: it gets the ports, whoever has them now."""
        return _moved(observe_unit(ctx), ctx)

    def apply(self, spec: ExposeSpec, change: Change, ctx: StepContext) -> Outputs:
        del change
        return command(ctx, "unit.expose", named(spec.generation))

    def recover(self, spec: ExposeSpec, seen: Seen, ctx: StepContext) -> None:
        """Give the ports back to the generation that had them, if it still lives."""
        del spec
        before = next((item for item in live(seen) if item.exposed), None)
        now = {item.number: item for item in live(observe_unit(ctx))}
        if before is not None and before.number in now and not now[before.number].exposed:
            command(ctx, "unit.expose", {"generation": before.number}, phase="undo")

    def known(self, spec: ExposeSpec, seen: Seen, ctx: StepContext) -> Outputs:
        del spec, seen
        return {"ports": [port.model_dump() for port in unit_of(ctx).ports]}


def _moved(seen: Seen, ctx: StepContext) -> Change:
    ports = _ports(ctx)
    holder = next((item for item in live(seen) if item.exposed), None)
    if holder is None:
        return Change(Action.CREATE, "publish ports", (Row(Action.CREATE, "ports", ports),))
    detail = f"{ports} move from generation {holder.number}"
    return Change(Action.CHANGE, "move ports", (Row(Action.CHANGE, "ports", detail),))


def _ports(ctx: StepContext) -> str:
    return ", ".join(f"{port.host}:{port.port or port.inner}" for port in unit_of(ctx).ports)
