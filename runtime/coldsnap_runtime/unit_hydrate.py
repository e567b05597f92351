"""The verb ``unit.hydrate``: weights and KV back into a restored engine, by the chosen provider."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from coldsnap.artifact.decode import Record, decode
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.rules import Id, Natural
from coldsnap_runtime import lease
from coldsnap_runtime.engine_door import door_of
from coldsnap_runtime.generation_notes import (
    HYDRATED,
    PAYLOAD,
    read_note,
    without_boot,
    write_note,
)
from coldsnap_runtime.http_calls import HttpCall, HttpCalls, perform, perform_all
from coldsnap_runtime.lease import RunId
from coldsnap_runtime.providers import Choice, after, failed
from coldsnap_runtime.template_files import is_template
from coldsnap_runtime.template_release import start_restored
from coldsnap_runtime.timing import Timing
from coldsnap_runtime.unit_calls import find, move
from coldsnap_runtime.unit_record import UnitStore

if TYPE_CHECKING:
    from coldsnap_runtime.context import Context
    from coldsnap_runtime.unit_record import GenerationPaths, UnitRecord


@dataclass(frozen=True)
class HydrateRequest(Record):
    unit: Id
    run: RunId
    calls: HttpCalls
    ready: HttpCall
    generation: Natural | None = None
    provider: Literal["auto", "native", "recovery"] | None = None
    """None: as the restore was asked."""


def hydrate(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """Bring model bytes back into a restored engine, then wait until it says that it is ready."""
    request = decode(HydrateRequest, value, what="unit.hydrate", code="request.invalid")
    with lease.held(context.state_dir, request.unit, request.run):
        store, record = find(context, request, "hydrate", ("restored", "hydrated", "serving"))
        timing = Timing(record.unit)
        if record.state != "restored":
            none = {"generation": record.generation, "bytes": 0, "answers": []}
            return {**none, "timing": timing.to_json()}
        return bring_back_bytes(request, store, record, timing, context)


def bring_back_bytes(
    request: HydrateRequest, store: UnitStore, record: UnitRecord, timing: Timing, context: Context
) -> dict[str, Any]:
    """As `hydrate`, for a caller that holds the unit's lease and knows its state."""
    paths = store.paths(record.unit, record.generation)
    choice = _choice(request, record, paths)
    door = door_of(store, record)
    with timing.span("hydrate") as span:
        try:
            if is_template(record):
                awaited = start_restored(store, record, request.ready, choice.allowed, timing)
                with timing.span("engine-start"):
                    perform(door, awaited, context)
            answers = perform_all(door, request.calls, timing, context)
        except ColdSnapError as error:
            raise failed(choice, error, context) from None
        choice = after(choice, answers, context, record.unit)
        size = _payload_bytes(paths) if choice.used == "native" else 0
        span.note(provider=choice.used, **({"bytes": size} if size else {}))
        for fault in choice.faults:
            span.note(**{f"{fault.provider}_out": f"{fault.code}: {fault.reason}"})
    with timing.span("ready"):
        perform(door, request.ready, context)
    result = {
        "generation": record.generation,
        "bytes": size,
        "provider": choice.to_json(),
        "answers": answers,
        "timing": timing.to_json(),
    }
    write_note(paths, HYDRATED, result)
    move(store, record, "hydrated")
    return result


def _choice(request: HydrateRequest, record: UnitRecord, paths: GenerationPaths) -> Choice:
    """What the restore chose, narrowed by what this request wants.

    Raises:
        ColdSnapError: ``provider.no-payload``.
    """
    note = read_note(paths, PAYLOAD)
    choice = Choice.from_json(note.get("choice") or {})
    wanted = request.provider or choice.allowed
    if wanted in (choice.allowed, "auto"):
        return choice
    if wanted == "native" and choice.allowed == "recovery":
        raise ColdSnapError(
            "provider.no-payload",
            "the generation was restored without a payload",
            f"unit {record.unit}",
            details=tuple(f"{f.provider}: {f.reason} ({f.code})" for f in choice.faults),
            remedy="restore it with provider: native, or hydrate it with provider: recovery",
        )
    choice = replace(choice, policy=wanted, allowed=wanted)
    write_note(paths, PAYLOAD, {**without_boot(note), "choice": choice.to_json()})
    return choice


def _payload_bytes(paths: GenerationPaths) -> int:
    size = read_note(paths, PAYLOAD).get("bytes", 0)
    return size if isinstance(size, int) else 0
