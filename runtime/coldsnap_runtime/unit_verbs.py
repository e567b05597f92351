"""The verbs that start, dump, restore, expose and stop units: leases, order, and what is kept.

The work itself is in unit_launch, unit_checkpoint, unit_restore, unit_expose and unit_stop.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.decode import decode
from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime import hold, image_folders, lease
from coldsnap_runtime.captured_files import arranged
from coldsnap_runtime.generation_notes import PAYLOAD, START, read_note, write_note
from coldsnap_runtime.http_calls import HttpCall, HttpCalls
from coldsnap_runtime.installation import Installation
from coldsnap_runtime.request_fields import calls_of, known_fields, text_of
from coldsnap_runtime.store_verbs import drop_published
from coldsnap_runtime.timing import Timing, boottime
from coldsnap_runtime.unit_calls import require_state, serve_again, wait_ready
from coldsnap_runtime.unit_checkpoint import checkpoint as dump
from coldsnap_runtime.unit_expose import expose as hand_over
from coldsnap_runtime.unit_launch import launch as start
from coldsnap_runtime.unit_record import UnitStore
from coldsnap_runtime.unit_requests import (
    CheckpointRequest,
    GenerationRequest,
    LaunchRequest,
    RestoreRequest,
)
from coldsnap_runtime.unit_restore import restore as bring_back
from coldsnap_runtime.unit_stop import stop as end

if TYPE_CHECKING:
    from coldsnap.artifact.validation import Policy
    from coldsnap_runtime.context import Context
    from coldsnap_runtime.image_folders import Image
    from coldsnap_runtime.unit_record import UnitRecord

_LAUNCH = "unit run engine model launch ready launch_sha256 request_sha256 expose criu"
_CHECKPOINT = "unit run capture_id request_sha256 generation resume criu"
_RESTORE = "unit run store artifact ports mounts verify deadline expose criu ready"
_GENERATION = "unit run generation grace"
_KILL_NOW = 0.0


def launch(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """Start an engine cold, wait until it is ready, offer its ports if asked.

    Raises:
        ColdSnapError: ``unit.*``, ``engine.not-ready``, ``engine.died``, ``expose.*``; nothing
            of the generation runs then.
    """
    begin = boottime()
    known_fields(value, _LAUNCH, "unit.launch")
    ready = decode(HttpCall, value.get("ready"), what="unit.launch: ready", code="request.invalid")
    request = LaunchRequest.from_json(value)
    with lease.held(context.state_dir, request.unit, request.run):
        stop_orphans(context, request.unit)
        store, timing = UnitStore(context.state_dir), Timing(request.unit)
        record = start(request, context, _installation(value, context), timing)
        try:
            _note_start(context, record, "launch", begin)
            record = wait_ready(context, store, record, ready, timing)
            if value.get("expose"):
                _expose(context, record, _installation(value, context), timing)
        except BaseException:
            _undo(context, record)
            raise
    return _started(record, timing)


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
                    request, context, _installation(value, context), timing, putting_back.run
                )
        except ColdSnapError as error:
            putting_back.tell(error)
            raise
        with timing.span("arrange"):
            result = arranged(Path(result["capture_dir"]), result, record.unit)
    return {**result, "capture_id": request.capture_id, "timing": timing.to_json()}


def restore(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """Bring an artifact back as a new generation in state ``restored``; older ones are untouched.

    Raises:
        ColdSnapError: ``store.*`` (a damaged or missing file, by name), ``restore.*``,
            ``criu.*``; nothing of the generation is left then.
    """
    begin = boottime()
    known_fields(value, _RESTORE, "unit.restore")
    unit, run = text_of(value, "unit", "unit.restore"), text_of(value, "run", "unit.restore")
    store_path = Path(text_of(value, "store", "unit.restore").removeprefix("oci-layout:"))
    first = RestoreRequest.from_json(value, Path("/"))
    with lease.held(context.state_dir, unit, run):
        stop_orphans(context, unit)
        timing = Timing(unit)
        policy: Policy = "full" if first.verify == "full" else "record"
        context.phase(f"verifying {first.artifact}")
        with timing.span("verify", policy=policy) as span:
            image = image_folders.lay_out(context, unit, store_path, first.artifact, policy)
            span.note(bytes=image.bytes, bytes_hashed=image.bytes_hashed)
        try:
            record = _bring_back(value, first, image, context, timing)
        except BaseException:
            image_folders.drop(context, unit, image.token)
            raise
        try:
            _note_restore(context, record, image, begin)
            if value.get("expose"):
                _expose(context, record, _installation(value, context), timing)
        except BaseException:
            _undo(context, record)
            raise
    return {**_started(record, timing), "t0_boottime": begin, "bytes": image.bytes}


def expose(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """Hand the unit's host ports to a generation that can answer."""
    known_fields(value, _GENERATION, "unit.expose")
    request = GenerationRequest.from_json(value)
    with lease.held(context.state_dir, request.unit, request.run):
        store, timing = UnitStore(context.state_dir), Timing(request.unit)
        record = store.live(request.unit, request.generation)
        require_state(record, "expose", ("hydrated", "serving", "sleeping", "quiesced"))
        result = _expose(context, record, Installation.find(context.pack), timing)
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


def stop_orphans(context: Context, unit: str) -> None:
    """End what a killed verb left: the caller holds the unit's lock, so nobody works on them."""
    store = UnitStore(context.state_dir)
    for record in store.generations(unit):
        note = read_note(store.paths(unit, record.generation), START)
        is_unfinished = record.state == "restored" and (
            not note or (context.job != "" and note.get("job") == context.job)
        )
        if record.state == "starting" or is_unfinished:
            context.log(f"unit {unit}: ending generation {record.generation}, left unfinished")
            end(_generation(record), context, Timing(unit))
    sweep_images(context, unit)


def sweep_images(context: Context, unit: str) -> None:
    """Drop image folders of generations that have ended."""
    store = UnitStore(context.state_dir)
    live = [record for record in store.generations(unit) if record.is_live]
    notes = (read_note(store.paths(unit, record.generation), START) for record in live)
    image_folders.sweep(context, unit, {str(note.get("image", "")) for note in notes})


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


def _bring_back(
    value: dict[str, Any], first: RestoreRequest, image: Image, context: Context, timing: Timing
) -> UnitRecord:
    request = replace(first, image=image.folder, payloads=image.payloads)
    if "deadline" in value:
        request = replace(request, deadline=float(value["deadline"]))
    with timing.span("restore"):
        return bring_back(request, context, _installation(value, context), timing)


def _installation(value: dict[str, Any], context: Context) -> Installation:
    """The pack's parts; a CRIU that the request names goes before the pack's."""
    found = Installation.find(context.pack)
    asked = value.get("criu")
    if isinstance(asked, str) and asked != os.fspath(found.criu) and os.access(asked, os.X_OK):
        return replace(found, criu=Path(asked))
    return found


def _expose(
    context: Context, record: UnitRecord, installation: Installation, timing: Timing
) -> dict[str, Any]:
    return hand_over(_generation(record), context, installation, timing)


def _generation(record: UnitRecord) -> GenerationRequest:
    return GenerationRequest(record.unit, record.run, record.generation, _KILL_NOW)


def _undo(context: Context, record: UnitRecord) -> None:
    context.phase(f"unit {record.unit}: ending generation {record.generation} again")
    end(_generation(record), context.uncancellable(), Timing(record.unit))
    sweep_images(context, record.unit)


def _require_hold(store: UnitStore, record: UnitRecord) -> None:
    if hold.is_complete(store.paths(record.unit, record.generation)):
        return
    raise ColdSnapError(
        "unit.wrong-state",
        f"generation {record.generation} was not quiesced to the end, or was resumed since",
        f"unit {record.unit}",
        remedy="quiesce it again; give it a longer hold if the watchdog resumed it",
    )


def _note_start(context: Context, record: UnitRecord, kind: str, begin: float) -> None:
    paths = UnitStore(context.state_dir).paths(record.unit, record.generation)
    note = {"kind": kind, "boottime": begin, "job": context.job, "pack": context.pack}
    write_note(paths, START, note)


def _note_restore(context: Context, record: UnitRecord, image: Image, begin: float) -> None:
    paths = UnitStore(context.state_dir).paths(record.unit, record.generation)
    write_note(paths, PAYLOAD, {"bytes": image.payload_bytes})
    note = {"kind": "restore", "boottime": begin, "job": context.job, "pack": context.pack}
    write_note(paths, START, {**note, "image": image.token})


def _started(record: UnitRecord, timing: Timing) -> dict[str, Any]:
    return {
        "generation": record.generation,
        "pid": record.init.pid if record.init else 0,
        "ports": [vars(port) for port in record.ports],
        "timing": timing.to_json(),
    }
