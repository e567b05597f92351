"""The verb ``unit.accept``: ask fixed prompts, and keep or compare what comes.

The first prompt is asked as a stream, so that the first token is seen when it comes; all prompts
(the first one too) are then asked whole, because that is the form that is compared.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from coldsnap.artifact.decode import Record, decode
from coldsnap.artifact.rules import Between, Count, Id, Natural, Prose, Seconds
from coldsnap_runtime import lease
from coldsnap_runtime.acceptance import Answer, compare, first_token, read_answer
from coldsnap_runtime.engine_door import door_of
from coldsnap_runtime.generation_notes import (
    ACCEPTED,
    FIRST_TOKEN,
    START,
    read_note,
    without_boot,
    write_note,
)
from coldsnap_runtime.http_calls import HttpCall, perform
from coldsnap_runtime.lease import RunId
from coldsnap_runtime.timing import Timing, boottime
from coldsnap_runtime.unit_calls import require_state
from coldsnap_runtime.unit_record import UnitStore

if TYPE_CHECKING:
    from coldsnap_runtime.context import Context
    from coldsnap_runtime.engine_door import EngineDoor
    from coldsnap_runtime.unit_record import GenerationPaths, UnitRecord


@dataclass(frozen=True)
class AcceptRequest(Record):
    unit: Id
    run: RunId
    prompts: Annotated[tuple[Prose, ...], Count(1, 256)]
    generation: Natural | None = None
    path: str = "/v1/completions"
    body: dict[str, Any] = field(default_factory=dict)
    """Merged over ``{"temperature": 0, "logprobs": 1, ...}``."""
    tokens: Annotated[int, Between(1, 65536)] = 16
    tolerance: Annotated[float, Between(0.0, 100.0)] = 0.0
    """Largest accepted difference of a log-probability; 0: exactly equal."""
    expected: tuple[Answer, ...] | None = None
    timeout: Annotated[float, Between(0.1, 86400.0)] = 300.0
    """Seconds for one answer."""
    t0_boottime: Seconds | None = None
    """Where first_token_seconds begins; without it the launch or restore of the generation."""


def accept(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """Ask all prompts; with `expected`, demand the same answers.

    Raises:
        ColdSnapError: ``accept.differs`` (prompt, position, expected, actual),
            ``accept.unreadable``, ``engine.*``, ``unit.wrong-state``, ``lease.*``.
    """
    request = decode(AcceptRequest, value, what="unit.accept", code="request.invalid")
    with lease.held(context.state_dir, request.unit, request.run):
        store = UnitStore(context.state_dir)
        record = store.live(request.unit, request.generation)
        require_state(record, "accept", ("hydrated", "serving"))
        return ask(request, store, record, Timing(record.unit), context)


def ask(
    request: AcceptRequest, store: UnitStore, record: UnitRecord, timing: Timing, context: Context
) -> dict[str, Any]:
    """As `accept`, for a caller that holds the unit's lease and knows its state."""
    door = door_of(store, record)
    paths = store.paths(record.unit, record.generation)
    first = _time_first_token(door, request, paths, timing, context)
    answers = _ask_all(door, request, timing, context)
    if request.expected is not None:
        compare(request.expected, answers, request.tolerance, door.where)
    result = {
        "generation": record.generation,
        "accepted": True,
        "compared": request.expected is not None,
        "answers": [answer.to_json() for answer in answers],
        **first,
        "timing": timing.to_json(),
    }
    write_note(paths, ACCEPTED, result)
    if record.state == "hydrated":
        store.update(record, state="serving", since=time.time())
    return result


def _ask_all(
    door: EngineDoor, request: AcceptRequest, timing: Timing, context: Context
) -> list[Answer]:
    answers = []
    for number, prompt in enumerate(request.prompts):
        context.progress("prompts", number, len(request.prompts), unit="prompts")
        with timing.span("answer", prompt=number):
            call = HttpCall("POST", request.path, _body(request, prompt), request.timeout)
            answers.append(read_answer(prompt, perform(door, call, context), door.where))
    context.progress("prompts", len(request.prompts), len(request.prompts), unit="prompts")
    return answers


def _time_first_token(
    door: EngineDoor,
    request: AcceptRequest,
    paths: GenerationPaths,
    timing: Timing,
    context: Context,
) -> dict[str, Any]:
    """Fields first_token_seconds, first_token_from, first_token_method, request_to_first_token.

    The first one that a generation ever gave is kept: a later accept reports it again.
    """
    kept = read_note(paths, FIRST_TOKEN)
    if request.t0_boottime is None and kept:
        return without_boot(kept)
    begin = boottime()
    with timing.span("first-token") as span:
        # One token is enough of a stream that only shows when the first one comes.
        body = {**_body(request, request.prompts[0]), "max_tokens": 1}
        call = HttpCall("POST", request.path, body, request.timeout)
        method, at = first_token(door, call, context)
        span.note(method=method)
    origin, name = _origin(request, paths)
    found = {
        "first_token_seconds": round(at - (begin if origin is None else origin), 6),
        "first_token_from": name,
        "first_token_method": method,
        "request_to_first_token_seconds": round(at - begin, 6),
    }
    write_note(paths, FIRST_TOKEN, found)
    return found


def _origin(request: AcceptRequest, paths: GenerationPaths) -> tuple[float | None, str]:
    """(seconds since boot, what they name) of the start that the first token is counted from."""
    if request.t0_boottime is not None:
        return request.t0_boottime, "t0_boottime"
    note = read_note(paths, START)
    begin = note.get("boottime")
    if isinstance(begin, float):
        return begin, str(note.get("kind", "start"))
    return None, "request"


def _body(request: AcceptRequest, prompt: str) -> dict[str, Any]:
    return {
        "temperature": 0,
        "logprobs": 1,
        **request.body,
        "prompt": prompt,
        "max_tokens": request.tokens,
    }


__all__ = ["AcceptRequest", "accept", "ask"]
