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
from coldsnap_core.captures import capture_question, captured, observe_capture
from coldsnap_core.launching import calls, engine_of
from coldsnap_core.quiesce.spec import QuiesceSpec
from coldsnap_core.target import command
from coldsnap_core.units import (
    acted_on,
    chosen,
    named,
    observe_unit,
    refuse_mapped,
    status_question,
)


class Quiesce(Step[QuiesceSpec]):
    type = "core.quiesce"
    summary = "drain the engine; it gives back payload, KV and caches and holds still"
    spec = QuiesceSpec
    outputs: ClassVar = {"timing": "spans", "answers": "what the engine said it gave back"}

    def reads(self, spec: QuiesceSpec, ctx: StepContext) -> Sequence[FactRequest]:
        questions = [status_question(ctx)]
        if spec.unless_captured:
            questions.append(capture_question(ctx))
        return questions

    def observe(self, spec: QuiesceSpec, ctx: StepContext) -> Seen:
        seen = observe_unit(ctx)
        if spec.unless_captured:
            seen |= observe_capture(ctx)
        return seen

    def diff(self, spec: QuiesceSpec, seen: Seen, ctx: StepContext) -> Change:
        if captured(seen):
            return unchanged("captured already")
        generation = acted_on(seen, spec.generation, ctx)
        if generation is None:
            rows = (Row(Action.UNKNOWN, "unit", "(known after apply)"),)
            return Change(Action.UNKNOWN, "drain and hold still", rows, pauses_serving=True)
        if spec.unless_captured:  # it is held still for a capture
            refuse_mapped(generation, ctx)
        # A unit that is quiesced already is quiesced again: the calls are idempotent, and the
        # watchdog of an earlier run must not wake it in the middle of the dump.
        rows = (Row(Action.CHANGE, "unit", f"generation {generation.number} stops answering"),)
        return Change(Action.CHANGE, "drain and hold still", rows, pauses_serving=True)

    def apply(self, spec: QuiesceSpec, change: Change, ctx: StepContext) -> Outputs:
        del change
        engine = engine_of(ctx)
        request = {
            "calls": calls(engine.quiesce()),
            "undo": calls(engine.resume()),
            "hold": spec.hold,
            **named(spec.generation),
        }
        return command(ctx, "unit.quiesce", request)

    def recover(self, spec: QuiesceSpec, seen: Seen, ctx: StepContext) -> None:
        """Serve again."""
        del seen
        if chosen(observe_unit(ctx), spec.generation) is not None:
            command(ctx, "unit.resume", {"calls": calls(engine_of(ctx).resume())}, phase="undo")

    def known(self, spec: QuiesceSpec, seen: Seen, ctx: StepContext) -> Outputs:
        del spec, seen, ctx
        return {"timing": None, "answers": []}
