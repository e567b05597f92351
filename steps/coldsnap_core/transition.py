"""Steps that move a live unit from one state to another by calls of its engine."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from coldsnap.sdk import (
    Action,
    Change,
    Engine,
    FactRequest,
    HttpCall,
    Outputs,
    Row,
    Seen,
    Spec,
    Step,
    StepContext,
    unchanged,
)
from coldsnap_core.launching import calls, engine_of
from coldsnap_core.target import command
from coldsnap_core.units import acted_on, chosen, named, observe_unit, status_question

S = TypeVar("S", bound=Spec)


class Transition(Step[S]):
    """`verb` with the engine's calls, unless the unit is in one of `settled` already."""

    verb: ClassVar[str]
    settled: ClassVar[frozenset[str]]
    pauses: ClassVar[bool] = False
    outputs: ClassVar = {"timing": "spans"}

    @abstractmethod
    def forward(self, engine: Engine) -> tuple[HttpCall, ...]:
        """Calls of the change."""

    def backward(self, engine: Engine) -> tuple[str, tuple[HttpCall, ...]] | None:
        """Verb and calls that undo it, if it can be undone."""
        del engine
        return None

    def generation(self, spec: S) -> int | None:
        number = getattr(spec, "generation", None)
        return int(number) if number is not None else None

    def reads(self, spec: S, ctx: StepContext) -> Sequence[FactRequest]:
        del spec
        return (status_question(ctx),)

    def observe(self, spec: S, ctx: StepContext) -> Seen:
        del spec
        return observe_unit(ctx)

    def diff(self, spec: S, seen: Seen, ctx: StepContext) -> Change:
        generation = acted_on(seen, self.generation(spec), ctx)
        if generation is None:
            return Change(Action.UNKNOWN, self.summary, pauses_serving=self.pauses)
        if generation.state in self.settled:
            return unchanged(f"generation {generation.number} is {generation.state}")
        row = Row(Action.CHANGE, "unit", f"generation {generation.number} is {generation.state}")
        return Change(Action.CHANGE, self.summary, (row,), pauses_serving=self.pauses)

    def apply(self, spec: S, change: Change, ctx: StepContext) -> Outputs:
        del change
        request: dict[str, Any] = {"calls": calls(self.forward(engine_of(ctx)))}
        return command(ctx, self.verb, request | named(self.generation(spec)))

    def recover(self, spec: S, seen: Seen, ctx: StepContext) -> None:
        undo = self.backward(engine_of(ctx))
        before = chosen(seen, self.generation(spec))
        if undo is None or before is None or before.state in self.settled:
            return
        verb, back = undo
        if chosen(observe_unit(ctx), before.number) is not None:
            request = {"generation": before.number, "calls": calls(back)}
            command(ctx, verb, request, phase="undo")

    def known(self, spec: S, seen: Seen, ctx: StepContext) -> Outputs:
        del spec, seen, ctx
        return {"timing": None}
