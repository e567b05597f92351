"""What follows a restore in the same process: hydration, first token, acceptance.

Requested as ``then`` of unit.restore::

    {"hydrate": {"calls": [...], "ready": {...}},
     "accept": {"path", "body", "tokens", "tolerance", "timeout"}}

The prompts and the answers that must come are the artifact's own.
"""

from __future__ import annotations

import importlib
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from coldsnap.artifact.decode import Record, decode
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.rules import Between
from coldsnap_runtime.accept import AcceptRequest, ask
from coldsnap_runtime.acceptance import Answer
from coldsnap_runtime.http_calls import HttpCall, HttpCalls
from coldsnap_runtime.timing import Timing
from coldsnap_runtime.unit_hydrate import HydrateRequest, bring_back_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coldsnap_runtime.context import Context
    from coldsnap_runtime.unit_record import UnitRecord, UnitStore


@dataclass(frozen=True)
class Hydration(Record):
    calls: HttpCalls
    ready: HttpCall


@dataclass(frozen=True)
class Questions(Record):
    """As in unit.accept."""

    path: str = "/v1/completions"
    body: dict[str, Any] = field(default_factory=dict)
    tokens: Annotated[int, Between(1, 65536)] = 16
    """For recorded answers that do not say how many they had."""
    tolerance: Annotated[float, Between(0.0, 100.0)] = 0.0
    timeout: Annotated[float, Between(0.1, 86400.0)] = 300.0


@dataclass(frozen=True)
class Then(Record):
    hydrate: Hydration | None = None
    accept: Questions | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.accept is not None and self.hydrate is None:
            yield "/accept", "needs hydrate before it"


@dataclass(frozen=True)
class Stages:
    """The stages of one restore, ready to run."""

    hydration: HydrateRequest | None = None
    acceptance: AcceptRequest | None = None

    def expect(self, answers: Sequence[Mapping[str, Any]]) -> None:
        """Whether the artifact holds what is to be compared; asked before anything is started.

        Raises:
            ColdSnapError: ``accept.nothing-expected``, ``artifact.invalid``.
        """
        if self.acceptance is not None:
            _expected(answers)

    def prepare(self) -> None:
        """Import what asking needs, in a thread: CRIU is waited for meanwhile."""
        if self.hydration is not None:
            names = ("http.client",)
            threading.Thread(target=_import_all, args=(names,), name="imports", daemon=True).start()

    def run(
        self,
        store: UnitStore,
        record: UnitRecord,
        answers: Sequence[Mapping[str, Any]],
        timing: Timing,
        context: Context,
    ) -> dict[str, Any]:
        """Fields ``hydrated`` and ``accepted``: the results of unit.hydrate and unit.accept."""
        done: dict[str, Any] = {}
        if self.hydration is not None:
            stage = Timing(record.unit)
            done["hydrated"] = bring_back_bytes(self.hydration, store, record, stage, context)
            timing.absorb(stage)
        if self.acceptance is not None:
            stage = Timing(record.unit)
            asked = _filled_in(self.acceptance, _expected(answers))
            record = replace(record, state="hydrated")
            done["accepted"] = ask(asked, store, record, stage, context)
            timing.absorb(stage)
        return done


def stages_of(value: Any, unit: str, run: str) -> Stages:
    """Raises ColdSnapError ``request.invalid``."""
    if value is None:
        return Stages()
    then = decode(Then, value, what="unit.restore: then", code="request.invalid")
    hydration = acceptance = None
    if then.hydrate is not None:
        hydration = HydrateRequest(unit, run, then.hydrate.calls, then.hydrate.ready)
    if then.accept is not None:
        acceptance = AcceptRequest(unit, run, (), **vars(then.accept))
    return Stages(hydration, acceptance)


def _import_all(names: tuple[str, ...]) -> None:
    for name in names:
        importlib.import_module(name)


def _expected(answers: Sequence[Mapping[str, Any]]) -> tuple[Answer, ...]:
    if not answers:
        raise ColdSnapError(
            "accept.nothing-expected",
            "the artifact holds no recorded answers to compare with",
            details=("nothing was started",),
            remedy="capture it with a core.accept step in mode: record",
        )
    return tuple(decode(Answer, dict(item), what="recorded answer") for item in answers)


def _filled_in(request: AcceptRequest, expected: tuple[Answer, ...]) -> AcceptRequest:
    lengths = [len(answer.tokens) for answer in expected if answer.tokens]
    return replace(
        request,
        prompts=tuple(answer.prompt for answer in expected),
        tokens=max(lengths, default=request.tokens),
        expected=expected,
    )
