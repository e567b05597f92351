from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from coldsnap_core.accept.request import questions
from coldsnap_core.accept.spec import AcceptSpec
from coldsnap_core.captures import capture_question, captured, observe_capture
from coldsnap_core.target import command
from coldsnap_core.units import chosen, detail, named, observe_unit, status_question

_DEMANDED = "tokens and log-probabilities must equal the capture's"


class Accept(Step[AcceptSpec]):
    type = "core.accept"
    summary = "tokens and log-probabilities of fixed prompts: record them, or demand the same"
    spec = AcceptSpec
    outputs: ClassVar = {
        "answers": "text, tokens and log-probabilities per prompt",
        "first_token_seconds": "from the start of the launch or restore to the first token",
        "launch_to_first_token_seconds": "the same, null unless it was a cold start",
        "same": "whether the answers equal the capture's; null when recorded",
        "timing": "spans",
    }

    def reads(self, spec: AcceptSpec, ctx: StepContext) -> Sequence[FactRequest]:
        asked = [status_question(ctx, details=True)]
        if spec.unless_captured:
            asked.append(capture_question(ctx))
        return asked

    def observe(self, spec: AcceptSpec, ctx: StepContext) -> Seen:
        seen = observe_unit(ctx, detail="accepted")
        if spec.unless_captured:
            seen |= observe_capture(ctx)
        return seen

    def diff(self, spec: AcceptSpec, seen: Seen, ctx: StepContext) -> Change:
        if captured(seen):
            return unchanged("the answers are recorded with the capture")
        generation = chosen(seen, spec.generation)
        asked = f"{spec.tokens} tokens of {_count(len(spec.prompts), 'prompt')}"
        if spec.mode == "record":
            rows = (Row(Action.CREATE, "answers", f"{asked}, with log-probabilities"),)
            return Change(Action.CREATE, "record answers", rows)
        if generation is not None and generation.state == "serving" and generation.artifact:
            return unchanged("accepted already; it serves")
        if spec.expected is None:
            raise ColdSnapError(
                "accept.nothing-expected",
                "there are no recorded answers to compare with",
                ctx.where,
                remedy="give expected: the output of core.restore, or set mode: record",
            )
        return Change(Action.CHANGE, _DEMANDED, (Row(Action.CHANGE, "answers", _DEMANDED),))

    def foresee(self, ctx: StepContext) -> Change | None:
        """Of answers that come with the artifact: they are demanded again."""
        del ctx
        row = Row(Action.CHANGE, "answers", _DEMANDED)
        return Change(Action.CHANGE, _DEMANDED, (row,))

    def apply(self, spec: AcceptSpec, change: Change, ctx: StepContext) -> Outputs:
        del change
        expected = spec.expected if spec.mode == "compare" else None
        request = {
            **questions(ctx),
            **named(spec.generation),
            "prompts": _prompts(spec, expected),
            "tokens": spec.tokens if expected is None else _tokens(expected, spec.tokens),
            "expected": expected,
        }
        result = command(ctx, "unit.accept", request)
        return {
            "answers": result.get("answers", []),
            **_first_token(result),
            "same": None if expected is None else bool(result.get("accepted")),
            "timing": result.get("timing"),
        }

    def stands(self, spec: AcceptSpec, seen: Seen, outputs: Outputs, ctx: StepContext) -> bool:
        """Recorded answers stay what they are; a comparison holds while what it asked serves."""
        if spec.mode == "record":
            return bool(outputs.get("answers"))
        return super().stands(spec, seen, outputs, ctx)

    def known(self, spec: AcceptSpec, seen: Seen, ctx: StepContext) -> Outputs:
        """What the job said that did it, such as a restore that went on by itself."""
        del ctx
        done = {} if captured(seen) else detail(seen, spec.generation, "accepted")
        return {
            "answers": done.get("answers", []),
            **_first_token(done),
            "same": True if done.get("compared") else None,
            "timing": done.get("timing"),
        }


def _first_token(result: Mapping[str, Any]) -> dict[str, Any]:
    seconds = result.get("first_token_seconds")
    is_cold = result.get("first_token_from") == "launch"
    return {
        "first_token_seconds": seconds,
        "launch_to_first_token_seconds": seconds if is_cold else None,
    }


def _prompts(spec: AcceptSpec, expected: Sequence[Mapping[str, Any]] | None) -> list[str]:
    return [str(item["prompt"]) for item in expected] if expected else list(spec.prompts)


def _tokens(expected: Sequence[Mapping[str, Any]], default: int) -> int:
    lengths = [len(item["tokens"]) for item in expected if item.get("tokens")]
    return max(lengths, default=default)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
