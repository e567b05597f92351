"""A small pack for the tests of the plan language: real step classes, templates in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from coldsnap.plan.registry import Registry
from coldsnap.sdk import (
    Acceptance,
    Change,
    ColdSnapError,
    Duration,
    HttpCall,
    Launch,
    Pack,
    Scope,
    Size,
    Spec,
    Step,
    unchanged,
)


class ProbeSpec(Spec):
    """What to look at."""

    timeout: Duration = 30.0
    """Longest time for the probe."""
    features: tuple[str, ...] = ()
    """Features to look for; all if empty."""
    level: Literal["fast", "full"] = "fast"
    count: Annotated[int, Field(ge=1, le=9)] = 1
    deep: bool = False
    memory: Size | None = None


class Accept(Spec):
    """What must come back."""

    prompt: str
    tokens: Annotated[int, Field(ge=1)] = 24


class AskSpec(Spec):
    prompt: str
    """What is asked."""
    accept: Accept | None = None
    folder: Annotated[str, Field(json_schema_extra={"placement": True})] = "/tmp"
    low: int = 0
    high: int = 10

    @model_validator(mode="after")
    def _order(self) -> AskSpec:
        if self.low > self.high:
            raise ValueError("low must not be above high")
        return self


class NoteSpec(Spec):
    text: str = ""
    extra: dict[str, int] = Field(default={})


class _Quiet(Step):
    def observe(self, spec, ctx):
        return {}

    def diff(self, spec, seen, ctx) -> Change:
        return unchanged("nothing to do")

    def apply(self, spec, change, ctx):
        return {}


class Probe(_Quiet):
    type = "demo.probe"
    summary = "Look at a host"
    spec = ProbeSpec
    scope = Scope.HOST
    outputs: ClassVar = {"free": "free bytes", "profile": "what was found"}
    read_only = True


class Ask(_Quiet):
    type = "demo.ask"
    summary = "Ask a unit"
    spec = AskSpec
    scope = Scope.UNIT
    outputs: ClassVar = {"answer": "what it said"}


class Note(_Quiet):
    type = "demo.note"
    summary = "Write down"
    spec = NoteSpec
    scope = Scope.RUN


class DemoEngine:
    name = "demo"
    drivers = ("criu", "c580")

    def launch(self, unit, model, host_vars):
        return Launch(("demo",))

    def quiesce(self):
        return (HttpCall("POST", "/sleep"),)

    resume = hydrate = sleep = wake = quiesce

    def acceptance(self, model):
        return Acceptance()


STEPS = {step.type: step for step in (Probe, Ask, Note)}


ROOT = Path(__file__).parent / "pack"


def demo_registry(root: Path | None = ROOT) -> Registry:
    """The demo pack with its templates, or with those of another folder's ``templates/``."""
    return Registry.from_packs(Pack("demo", STEPS, root), engines={"demo": DemoEngine})


def found(error: ColdSnapError) -> list[str]:
    """Each error as one line: code, place, message, cause, remedy."""
    return [_line(each) for each in (error, *error.more)]


def _line(error: ColdSnapError) -> str:
    source = error.source
    place = f"{source.line}:{source.column}+{source.width}" if source else "-"
    parts = [f"{error.code} {place} {error.message}"]
    parts += [f"({error.cause})"] if error.cause else []
    parts += [f"-> {error.remedy}"] if error.remedy else []
    return " ".join(parts)
