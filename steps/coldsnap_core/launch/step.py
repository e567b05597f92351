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
from coldsnap_core.captures import (
    capture_question,
    captured,
    model_row,
    observe_capture,
    request_sha256,
    short,
)
from coldsnap_core.drivers import warn
from coldsnap_core.launch.spec import LaunchSpec
from coldsnap_core.launching import launch_body, launch_sha256
from coldsnap_core.target import command, place
from coldsnap_core.units import (
    Generation,
    admit_place,
    live,
    observe_placed,
    observe_unit,
    placed_as_planned,
    placed_question,
    status_question,
)


class Launch(Step[LaunchSpec]):
    type = "core.launch"
    summary = "start an engine in namespaces of its own and wait until it serves"
    spec = LaunchSpec
    outputs: ClassVar = {
        "generation": "number of the process tree that serves",
        "ports": "published ports",
        "timing": "spans of the start",
    }

    def reads(self, spec: LaunchSpec, ctx: StepContext) -> Sequence[FactRequest]:
        questions = [status_question(ctx), placed_question(ctx)]
        if spec.unless_captured:
            questions.append(capture_question(ctx))
        return questions

    def observe(self, spec: LaunchSpec, ctx: StepContext) -> Seen:
        seen = observe_placed(ctx)
        seen["launch_sha256"] = launch_sha256(launch_body(ctx, plain=spec.plain))
        if spec.unless_captured:
            seen |= observe_capture(ctx)
        return seen

    def diff(self, spec: LaunchSpec, seen: Seen, ctx: StepContext) -> Change:
        running = _running(seen, ctx)
        if running is not None:
            return unchanged(f"generation {running.number} serves", *model_row(seen))
        if captured(seen):
            said = f"captured already as {short(captured(seen))}"
            return unchanged(said, *model_row(seen))
        admit_place(seen, ctx)
        others = live(seen)
        if others and not spec.replace:
            raise _busy(others[0], ctx)
        rows = [Row(Action.CREATE, "process tree", "cold start")]
        rows += [Row(Action.STOP, "unit", f"generation {g.number}, {g.state}") for g in others]
        return Change(Action.CREATE, "start the engine", tuple(rows))

    def apply(self, spec: LaunchSpec, change: Change, ctx: StepContext) -> Outputs:
        del change
        warn(ctx)
        body = launch_body(ctx, plain=spec.plain)
        body["ready"]["retry_seconds"] = spec.ready_timeout
        body["criu"] = f"{place(ctx)['pack']}/criu/criu"
        digests = {"launch_sha256": launch_sha256(body), "request_sha256": request_sha256(ctx)}
        result = command(ctx, "unit.launch", {**body, **digests, "expose": spec.expose})
        for generation in live(observe_unit(ctx)) if spec.replace else ():
            if generation.number != result.get("generation"):
                request = {"generation": generation.number, "grace": 20}
                command(ctx, "unit.stop", request, phase=f"stop.{generation.number}")
        return result

    def recover(self, spec: LaunchSpec, seen: Seen, ctx: StepContext) -> None:
        """Stop every generation that was not there before."""
        del spec
        before = {item.number for item in live(seen)}
        for generation in live(observe_unit(ctx)):
            if generation.number not in before:
                request: dict[str, Any] = {"generation": generation.number, "grace": 10}
                command(ctx, "unit.stop", request, phase=f"undo.{generation.number}")

    def known(self, spec: LaunchSpec, seen: Seen, ctx: StepContext) -> Outputs:
        del spec
        running = _running(seen, ctx)
        return {"generation": running.number if running else None, "ports": [], "timing": None}


def _running(seen: Seen, ctx: StepContext) -> Generation | None:
    wanted = seen.get("launch_sha256")
    return next(
        (
            generation
            for generation in live(seen)
            if generation.launch_sha256 == wanted
            and generation.state in {"serving", "quiesced"}
            and placed_as_planned(ctx, generation)
        ),
        None,
    )


def _busy(other: Generation, ctx: StepContext) -> ColdSnapError:
    origin = f"artifact {short(other.artifact)}" if other.artifact else "another launch"
    return ColdSnapError(
        "launch.unit-busy",
        f"generation {other.number} of the unit is {other.state}, from {origin}",
        ctx.where,
        details=("its command, environment, model or ports differ from this plan's",),
        remedy="give the new engine another unit id, stop that one (plans/evict.yaml), "
        "or set replace: true",
    )
