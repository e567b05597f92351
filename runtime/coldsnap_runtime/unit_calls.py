"""The verbs that move a unit from state to state by calls to its engine.

::

    starting -> serving <-> quiesced            restored -> hydrated -> serving
                serving <-> sleeping

Each takes the unit's lease, refuses a wrong state by name, and does nothing where it has nothing
to do. A failed quiesce puts the engine back.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from coldsnap.artifact.decode import Record, decode
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.rules import Between, Id, Natural
from coldsnap_runtime import hold, lease, unit_expose
from coldsnap_runtime.capture_sizes import note_quiesced
from coldsnap_runtime.engine_door import door_of, drop_export
from coldsnap_runtime.generation_notes import HOLD, read_note
from coldsnap_runtime.http_calls import HttpCall, HttpCalls, perform, perform_all
from coldsnap_runtime.lease import RunId
from coldsnap_runtime.log_phases import LogPhases
from coldsnap_runtime.timing import Timing
from coldsnap_runtime.unit_record import UnitStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldsnap_runtime.context import Context
    from coldsnap_runtime.unit_record import UnitRecord


class UnitRequest(Protocol):
    """What every request of a live unit has."""

    @property
    def unit(self) -> str: ...
    @property
    def generation(self) -> int | None: ...


@dataclass(frozen=True)
class CallsRequest(Record):
    """For resume, call, sleep, wake."""

    unit: Id
    run: RunId
    calls: HttpCalls
    generation: Natural | None = None


@dataclass(frozen=True)
class QuiesceRequest(Record):
    unit: Id
    run: RunId
    calls: HttpCalls
    undo: HttpCalls
    """Serve again: made when a call fails, and by the watchdog."""
    hold: Annotated[float, Between(0.1, 86400.0)]
    """Seconds after which the engine serves again by itself."""
    generation: Natural | None = None


def quiesce(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """Drain the engine and hold it still; a quiesced one is quiesced anew, with a fresh hold.

    Raises:
        ColdSnapError: ``unit.wrong-state``, ``engine.*`` (it serves again, or the message says
            that it does not), ``lease.*``.
    """
    request = decode(QuiesceRequest, value, what="unit.quiesce", code="request.invalid")
    with lease.held(context.state_dir, request.unit, request.run):
        store, record = find(context, request, "quiesce", ("serving", "quiesced"))
        paths = store.paths(record.unit, record.generation)
        timing = Timing(record.unit)
        note = hold.begin(context, record, request.hold, request.undo)
        # New callers wait in the port map's backlog rather than being refused by the engine.
        unit_expose.hold(record)
        try:
            door = door_of(store, record)
            with timing.span("quiesce"):
                answers = perform_all(door, request.calls, timing, context)
            hold.complete(paths, note)
            note_quiesced(paths, answers)
        except BaseException as error:
            _put_back(context, store, record, request.undo, error)
            raise
        move(store, record, "quiesced")
    return {"generation": record.generation, "answers": answers, "timing": timing.to_json()}


def resume(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """Serve again; of a unit that serves nothing is asked."""
    request = decode(CallsRequest, value, what="unit.resume", code="request.invalid")
    with lease.held(context.state_dir, request.unit, request.run):
        store, record = find(context, request, "resume", ("quiesced", "serving"))
        return serve_again(context, store, record, request.calls)


def serve_again(
    context: Context, store: UnitStore, record: UnitRecord, calls: Sequence[HttpCall]
) -> dict[str, Any]:
    """Make the calls, note that it serves, dismiss the watchdog."""
    timing = Timing(record.unit)
    paths = store.paths(record.unit, record.generation)
    answers: list[Any] = []
    if record.state == "quiesced" or read_note(paths, HOLD):
        with timing.span("resume"):
            answers = perform_all(door_of(store, record), calls, timing, context)
        unit_expose.go_on(record)
        drop_export(paths)
        move(store, record, "serving")
        hold.end(paths)
    return {"generation": record.generation, "answers": answers, "timing": timing.to_json()}


def call(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """Any calls to a live engine; its state stays."""
    request = decode(CallsRequest, value, what="unit.call", code="request.invalid")
    with lease.held(context.state_dir, request.unit, request.run):
        store = UnitStore(context.state_dir)
        record = store.live(request.unit, request.generation)
        return _make(context, store, record, request.calls, "call")


def sleep(value: dict[str, Any], context: Context) -> dict[str, Any]:
    return _transition(value, context, "sleep", "serving", "sleeping")


def wake(value: dict[str, Any], context: Context) -> dict[str, Any]:
    return _transition(value, context, "wake", "sleeping", "serving")


def wait_ready(
    context: Context,
    store: UnitStore,
    record: UnitRecord,
    ready: HttpCall,
    timing: Timing,
    phases: Sequence[tuple[str, str]] = (),
) -> UnitRecord:
    """Wait until a started engine answers, and note that it serves; `phases`: see `LogPhases`."""
    context.phase(f"unit {record.unit}: waiting for the engine")
    door = door_of(store, record)
    with timing.span("ready"), LogPhases(door.log, phases, timing):
        perform(door, ready, context)
    return move(store, record, "serving")


def _transition(
    value: dict[str, Any], context: Context, verb: str, begin: str, end: str
) -> dict[str, Any]:
    request = decode(CallsRequest, value, what=f"unit.{verb}", code="request.invalid")
    with lease.held(context.state_dir, request.unit, request.run):
        store, record = find(context, request, verb, (begin, end))
        calls = request.calls if record.state == begin else ()
        result = _make(context, store, record, calls, verb)
        if record.state == begin:
            move(store, record, end)
    return result


def _make(
    context: Context, store: UnitStore, record: UnitRecord, calls: Sequence[HttpCall], name: str
) -> dict[str, Any]:
    timing = Timing(record.unit)
    with timing.span(name):
        answers = perform_all(door_of(store, record), calls, timing, context)
    return {"generation": record.generation, "answers": answers, "timing": timing.to_json()}


def find(
    context: Context,
    request: UnitRequest,
    verb: str,
    states: tuple[str, ...],
) -> tuple[UnitStore, UnitRecord]:
    store = UnitStore(context.state_dir)
    record = store.live(request.unit, request.generation)
    require_state(record, verb, states)
    return store, record


def require_state(record: UnitRecord, verb: str, states: tuple[str, ...]) -> None:
    """Raises ColdSnapError ``unit.wrong-state``."""
    if record.state in states:
        return
    raise ColdSnapError(
        "unit.wrong-state",
        f"generation {record.generation} is {record.state}; {verb} needs it {' or '.join(states)}",
        f"unit {record.unit}",
        remedy=_NEXT.get(record.state, ""),
    )


_NEXT = {
    "restored": "hydrate it first",
    "sleeping": "wake it first",
    "quiesced": "put back the run that paused it: coldsnap plan rollback RUN; "
    "or wait, it serves again by itself when its hold ends",
    "starting": "wait until it serves",
}


def move(store: UnitStore, record: UnitRecord, state: str) -> UnitRecord:
    return store.update(record, state=state, since=time.time())


def _put_back(
    context: Context,
    store: UnitStore,
    record: UnitRecord,
    undo: Sequence[HttpCall],
    error: BaseException,
) -> None:
    """After a failed quiesce: serve again. If that fails too, the watchdog goes on trying."""
    context.phase(f"unit {record.unit}: quiesce failed, serving again")
    paths = store.paths(record.unit, record.generation)
    try:
        perform_all(door_of(store, record), undo, Timing(record.unit), context.uncancellable())
    except ColdSnapError as second:
        if isinstance(error, ColdSnapError):
            error.changed = True
            error.details = (*error.details, f"and it does not serve again: {second.message}")
        return
    unit_expose.go_on(record)
    drop_export(paths)
    move(store, record, "serving")
    hold.end(paths)
    if isinstance(error, ColdSnapError):
        error.details = (*error.details, "it serves again")
