"""The verbs that start, dump, expose and stop units: leases, order, and what is kept.

The work itself is in unit_launch, unit_checkpoint, unit_expose and unit_stop; ``unit.restore`` has
a module of its own, restore_verb.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.decode import decode
from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime import hold, lease
from coldsnap_runtime.activation import stages_of
from coldsnap_runtime.capture_seal import remove
from coldsnap_runtime.capture_sizes import engine_sizes
from coldsnap_runtime.captured_files import arranged
from coldsnap_runtime.cold_start import cold_start, note_cold_start
from coldsnap_runtime.gpu_admission import admit_launch
from coldsnap_runtime.gpus import read_gpus
from coldsnap_runtime.http_calls import HttpCall, HttpCalls
from coldsnap_runtime.installation import Installation
from coldsnap_runtime.log_phases import phases_asked
from coldsnap_runtime.model_files import record_model
from coldsnap_runtime.request_fields import calls_of, known_fields
from coldsnap_runtime.store_verbs import drop_published
from coldsnap_runtime.template_files import is_template
from coldsnap_runtime.timing import Timing, boottime
from coldsnap_runtime.unit_calls import require_state, serve_again, wait_ready
from coldsnap_runtime.unit_checkpoint import checkpoint as dump
from coldsnap_runtime.unit_checkpoint import context_folder
from coldsnap_runtime.unit_launch import launch as start
from coldsnap_runtime.unit_lifecycle import (
    expose_now,
    installation_of,
    note_start,
    started,
    stop_orphans,
    sweep_images,
    undo,
)
from coldsnap_runtime.unit_record import UnitStore
from coldsnap_runtime.unit_requests import (
    CheckpointRequest,
    GenerationRequest,
    LaunchRequest,
    LaunchSpec,
)
from coldsnap_runtime.unit_stop import stop as end
from coldsnap_runtime.unit_template import park

if TYPE_CHECKING:
    from coldsnap_runtime.canary import Ask
    from coldsnap_runtime.context import Context
    from coldsnap_runtime.unit_record import UnitRecord

_LAUNCH = (
    "unit run engine model launch ready phases launch_sha256 request_sha256 expose criu"
    " device_share"
)
_CHECKPOINT = "unit run capture_id request_sha256 generation resume criu driver prove"
_GENERATION = "unit run generation grace"


def launch(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """Start an engine cold, wait until it is ready, offer its ports if asked.

    Raises:
        ColdSnapError: ``unit.*``, ``gpu.*``, ``engine.not-ready``, ``engine.died``,
            ``expose.*``; nothing of the generation runs then.
    """
    begin = boottime()
    known_fields(value, _LAUNCH, "unit.launch")
    ready = decode(HttpCall, value.get("ready"), what="unit.launch: ready", code="request.invalid")
    request = LaunchRequest.from_json(value)
    with lease.held(context.state_dir, request.unit, request.run):
        stop_orphans(context, request.unit)
        _require_devices(request, value.get("device_share"))
        store, timing = UnitStore(context.state_dir), Timing(request.unit)
        record = start(request, context, installation_of(value, context), timing)
        try:
            note_start(context, record, "launch", begin)
            if is_template(record):
                park(record, context, installation_of(value, context), timing)
            phases = phases_asked(value.get("phases"))
            record = wait_ready(context, store, record, ready, timing, phases)
            note_cold_start(store.paths(record.unit, record.generation), timing)
            if value.get("expose"):
                expose_now(context, record, installation_of(value, context), timing)
        except BaseException:
            undo(context, record)
            raise
    return started(record, timing)


def _require_devices(request: LaunchRequest, share: Any) -> None:
    """What the engine would find out half a minute later, while it loads."""
    if isinstance(share, (int, float)) and 0 < share <= 1:
        visible = str(request.launch.raw.get("env", {}).get("CUDA_VISIBLE_DEVICES") or "")
        try:
            admit_launch(visible, float(share), read_gpus())
        except ColdSnapError as error:
            error.where = error.where or f"unit {request.unit}"
            raise


def checkpoint(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """Dump a quiesced unit and let it serve on, whether that succeeded or not.

    Raises:
        ColdSnapError: ``unit.wrong-state``, ``checkpoint.*``, ``criu.*``, ``file.disk-full``;
            details say whether the engine serves again.
    """
    known_fields(value, _CHECKPOINT, "unit.checkpoint")
    resume = calls_of(value, "resume", "unit.checkpoint")
    request = CheckpointRequest.from_json(value)
    with lease.held(context.state_dir, request.unit, request.run):
        store, timing = UnitStore(context.state_dir), Timing(request.unit)
        record = store.live(request.unit, request.generation)
        require_state(record, "checkpoint", ("quiesced",))
        _require_hold(store, record)
        drop_published(context, request.unit)
        putting_back = _Resume(context, store, record, resume)
        request = replace(request, generation=record.generation)
        try:
            with timing.span("checkpoint"):
                result = dump(
                    request,
                    context,
                    installation_of(value, context),
                    timing,
                    putting_back.run,
                    _asking(request),
                )
        except ColdSnapError as error:
            putting_back.tell(error)
            raise
        with timing.span("arrange"):
            result = arranged(Path(result["capture_dir"]), result, record.unit)
            paths = store.paths(record.unit, record.generation)
            more = engine_sizes(paths, Path(result["capture_dir"]), result["payloads"])
    return {
        **result,
        "sizes": result["sizes"] | more,
        "capture_id": request.capture_id,
        "cold_start": cold_start(store.paths(record.unit, record.generation)),
        "model_files": record_model(record.model, LaunchSpec.from_json(record.launch)),
        "timing": timing.to_json(),
    }


def _asking(request: CheckpointRequest) -> Ask | None:
    """How a canary of the capture is asked for the recorded answers, if there are any."""
    question = request.question
    if question is None or not question.answers:
        return None
    stages = stages_of(question.then, request.unit, request.run)

    def ask(store: UnitStore, record: UnitRecord, context: Context) -> None:
        stages.run(store, record, question.answers, Timing(record.unit), context)

    return ask


def discard(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """Remove the folder of a dump, whole or half; ``{removed}``. What a store has of it stays."""
    known_fields(value, "unit run capture_id", "unit.discard")
    request = CheckpointRequest.from_json(value)
    with lease.held(context.state_dir, request.unit, request.run):
        folder = context_folder(context, request)
        places = [folder, folder.with_name(folder.name + ".partial")]
        removed = any(place.exists() for place in places)
        for place in places:
            remove(place)
        with contextlib.suppress(OSError):  # others of the unit may be there
            folder.parent.rmdir()
    return {"removed": removed}


def expose(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """Hand the unit's host ports to a generation that can answer."""
    known_fields(value, _GENERATION, "unit.expose")
    request = GenerationRequest.from_json(value)
    with lease.held(context.state_dir, request.unit, request.run):
        store, timing = UnitStore(context.state_dir), Timing(request.unit)
        record = store.live(request.unit, request.generation)
        require_state(record, "expose", ("hydrated", "serving", "sleeping", "quiesced"))
        result = expose_now(context, record, Installation.find(context.pack), timing)
    return {**result, "timing": timing.to_json()}


def stop(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """End a generation and give back what it held: ports, image folder, pin."""
    known_fields(value, _GENERATION, "unit.stop")
    request = GenerationRequest.from_json(value)
    with lease.held(context.state_dir, request.unit, request.run):
        timing = Timing(request.unit)
        store = UnitStore(context.state_dir)
        record = store.load(request.unit, request.generation)
        request = replace(request, generation=record.generation)
        hold.end(store.paths(record.unit, record.generation))
        result = end(request, context, timing)
        sweep_images(context, request.unit)
    return {**result, "timing": timing.to_json()}


class _Resume:
    """Serving again after a dump; remembers whether that worked."""

    def __init__(
        self, context: Context, store: UnitStore, record: UnitRecord, calls: HttpCalls
    ) -> None:
        self._context = context.uncancellable()
        self._store, self._record, self._calls = store, record, calls
        self._failure: ColdSnapError | None = None
        self._was_run = False

    def run(self) -> None:
        self._was_run = True
        try:
            serve_again(self._context, self._store, self._record, self._calls)
        except ColdSnapError as error:
            self._failure = error
            raise

    def tell(self, error: ColdSnapError) -> None:
        """Add to `error` in which state the engine is."""
        if not self._was_run or self._failure is error:
            return
        if self._failure is None:
            error.details = (*error.details, "the engine serves again")
            return
        error.changed = True
        said = f"the engine does not serve again: {self._failure.message}"
        error.details = (*error.details, said)


def _require_hold(store: UnitStore, record: UnitRecord) -> None:
    if hold.is_complete(store.paths(record.unit, record.generation)):
        return
    raise ColdSnapError(
        "unit.wrong-state",
        f"generation {record.generation} was not quiesced to the end, or was resumed since",
        f"unit {record.unit}",
        remedy="quiesce it again; give it a longer hold if the watchdog resumed it",
    )
