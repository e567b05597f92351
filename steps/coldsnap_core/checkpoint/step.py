from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

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
from coldsnap_core.accept.request import questions
from coldsnap_core.captures import (
    capture_question,
    captured,
    observe_capture,
    request_sha256,
    short,
)
from coldsnap_core.checkpoint.spec import CheckpointSpec
from coldsnap_core.drivers import driver_of
from coldsnap_core.hydrate.request import hydration
from coldsnap_core.launching import calls, engine_of
from coldsnap_core.target import command, place
from coldsnap_core.units import (
    Generation,
    chosen,
    named,
    observe_unit,
    refuse_mapped,
    status_question,
)

_NAME_LENGTH = 80
_READY = 120.0
"""Seconds that a canary has to be ready after hydration."""


class Checkpoint(Step[CheckpointSpec]):
    type = "core.checkpoint"
    summary = "dump the quiesced unit with CRIU; it serves on"
    spec = CheckpointSpec
    outputs: ClassVar = {
        "capture": "folder, objects, payloads, sizes and processes of the dump",
        "captured": "digest of an earlier capture of the same request, or empty",
        "timing": "spans",
    }

    def reads(self, spec: CheckpointSpec, ctx: StepContext) -> Sequence[FactRequest]:
        del spec
        return (status_question(ctx), capture_question(ctx))

    def observe(self, spec: CheckpointSpec, ctx: StepContext) -> Seen:
        seen = observe_unit(ctx)
        return seen | observe_capture(ctx) if spec.unless_captured else seen

    def diff(self, spec: CheckpointSpec, seen: Seen, ctx: StepContext) -> Change:
        if captured(seen):
            detail = short(captured(seen))
            return unchanged("captured already", Row(Action.NONE, "capsule", detail))
        generation = chosen(seen, spec.generation)
        refuse_mapped(generation, ctx)
        return _dump(generation, ctx)

    def foresee(self, ctx: StepContext) -> Change | None:
        """Of a unit whose answers are to be recorded first: it is dumped and pauses for it."""
        return _dump(chosen(observe_unit(ctx), None), ctx)

    def apply(self, spec: CheckpointSpec, change: Change, ctx: StepContext) -> Outputs:
        del change
        request: dict[str, Any] = {
            "capture_id": _capture_id(spec, ctx),
            "request_sha256": request_sha256(ctx),
            "resume": calls(engine_of(ctx).resume()),
            "criu": f"{place(ctx)['pack']}/criu/criu",
            "driver": driver_of(ctx),
            **named(spec.generation),
        }
        if spec.answers:
            then = {"hydrate": hydration(ctx, _READY), "accept": questions(ctx)}
            request["prove"] = {"then": then, "answers": list(spec.answers)}
        result = command(ctx, "unit.checkpoint", request)
        return {"capture": result, "captured": "", "timing": result.get("timing")}

    def recover(self, spec: CheckpointSpec, seen: Seen, ctx: StepContext) -> None:
        """Make sure that the unit serves, and that the dump does not fill the disk.

        A dump that fails puts the unit back by itself, one that is killed does not.
        """
        del seen
        generation = chosen(observe_unit(ctx), spec.generation)
        if generation is not None and generation.state == "quiesced":
            command(ctx, "unit.resume", {"calls": calls(engine_of(ctx).resume())}, phase="undo")
        command(ctx, "unit.discard", {"capture_id": _capture_id(spec, ctx)}, phase="discard")

    def stands(self, spec: CheckpointSpec, seen: Seen, outputs: Outputs, ctx: StepContext) -> bool:
        """A finished dump waits in its folder to be published; nothing is paused again for it."""
        del spec, seen, ctx
        return bool(outputs.get("capture") or outputs.get("captured"))

    def known(self, spec: CheckpointSpec, seen: Seen, ctx: StepContext) -> Outputs:
        del spec, ctx
        return {"capture": None, "captured": captured(seen), "timing": None}


def _dump(generation: Generation | None, ctx: StepContext) -> Change:
    detail = f"of generation {generation.number}" if generation else "(known after apply)"
    rows = (Row(Action.CREATE, "capsule", detail),)
    if ctx.plan.driver == "n580":  # dumped when it was launched
        return Change(Action.CREATE, "take the parked template and its caches", rows)
    return Change(Action.CREATE, "dump the process tree", rows, pauses_serving=True)


def _capture_id(spec: CheckpointSpec, ctx: StepContext) -> str:
    # The run makes it unique; the name may be as long as a whole id.
    return f"{spec.name[:_NAME_LENGTH]}.{ctx.run}" if ctx.run else spec.name
