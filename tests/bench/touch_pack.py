"""A pack for the benches: the least that a step can do on a host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from coldsnap.sdk import (
    Action,
    Change,
    FactRequest,
    OperationRequest,
    Outputs,
    Pack,
    Row,
    Scope,
    Seen,
    Spec,
    Step,
    StepContext,
    unchanged,
)

FACT = "pyinfra.facts.server:Hostname"
OPERATION = "pyinfra.operations.server:shell"


class TouchSpec(Spec):
    value: str = ""
    wanted: str = "never"
    """The step is unchanged where the fact has this value."""


class Touch(Step[TouchSpec]):
    """One fact, one operation."""

    type = "bench.touch"
    summary = "one fact, one operation"
    spec = TouchSpec
    scope = Scope.HOST
    outputs: ClassVar = {"value": "what it was given"}

    def reads(self, spec: TouchSpec, ctx: StepContext) -> Sequence[FactRequest]:
        return (FactRequest(FACT),)

    def observe(self, spec: TouchSpec, ctx: StepContext) -> Seen:
        assert ctx.host is not None
        return {"hostname": ctx.host.ask(FactRequest(FACT)), "value": spec.value}

    def diff(self, spec: TouchSpec, seen: Seen, ctx: StepContext) -> Change:
        rows = (Row(Action.CREATE, "hostname", str(seen["hostname"])),)
        if seen["hostname"] == spec.wanted:
            return unchanged("touched", *rows)
        return Change(Action.CREATE, "touch it", rows)

    def apply(self, spec: TouchSpec, change: Change, ctx: StepContext) -> Outputs:
        assert ctx.host is not None
        ctx.host.perform(OperationRequest(OPERATION, {"commands": ["true"]}))
        return {"value": spec.value}

    def known(self, spec: TouchSpec, seen: Seen, ctx: StepContext) -> Outputs:
        return {"value": spec.value}


PACK = Pack("bench", {Touch.type: Touch})
