"""What the verbs that start, restore and end generations share: undoing, notes, answers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap_runtime import image_folders
from coldsnap_runtime.canary import end_canaries
from coldsnap_runtime.generation_notes import START, read_note, write_note
from coldsnap_runtime.installation import Installation
from coldsnap_runtime.timing import Timing
from coldsnap_runtime.unit_expose import expose as hand_over
from coldsnap_runtime.unit_record import UnitStore
from coldsnap_runtime.unit_requests import GenerationRequest
from coldsnap_runtime.unit_stop import stop as end

if TYPE_CHECKING:
    from coldsnap_runtime.context import Context
    from coldsnap_runtime.unit_record import UnitRecord

_KILL_NOW = 0.0


def stop_orphans(context: Context, unit: str) -> None:
    """End what a killed verb left: the caller holds the unit's lock, so nobody works on them."""
    end_canaries(context, unit)
    store = UnitStore(context.state_dir)
    for record in store.generations(unit):
        note = read_note(store.paths(unit, record.generation), START)
        # Cut off before its PID 1 came, a generation is dead before anything was noted of it.
        never_came = record.state == "dead" and not note
        if never_came or (record.is_live and _is_unfinished(record, note, context)):
            context.log(f"unit {unit}: ending generation {record.generation}, left unfinished")
            end(generation_request(record), context, Timing(unit))
    sweep_images(context, unit)


def _is_unfinished(record: UnitRecord, note: dict[str, Any], context: Context) -> bool:
    """A job that is run again died before it could say what it had made."""
    if record.state == "starting" or (record.state == "restored" and not note):
        return True
    is_own = context.job != "" and note.get("job") == context.job
    is_restored = note.get("kind") == "restore" and not record.exposed
    return is_own and is_restored and record.state in ("restored", "hydrated", "serving")


def sweep_images(context: Context, unit: str) -> None:
    """Drop image folders of generations that have ended."""
    store = UnitStore(context.state_dir)
    live = [record for record in store.generations(unit) if record.is_live]
    notes = (read_note(store.paths(unit, record.generation), START) for record in live)
    image_folders.sweep(context, unit, {str(note.get("image", "")) for note in notes})


def installation_of(value: dict[str, Any], context: Context) -> Installation:
    """The pack's parts; a CRIU that the request names goes before the pack's."""
    found = Installation.find(context.pack)
    asked = value.get("criu")
    if isinstance(asked, str) and asked != os.fspath(found.criu) and os.access(asked, os.X_OK):
        return replace(found, criu=Path(asked))
    return found


def expose_now(
    context: Context, record: UnitRecord, installation: Installation, timing: Timing
) -> dict[str, Any]:
    """Hand the unit's host ports to a generation."""
    return hand_over(generation_request(record), context, installation, timing)


def generation_request(record: UnitRecord) -> GenerationRequest:
    """For what a verb does to a generation of its own."""
    return GenerationRequest(record.unit, record.run, record.generation, _KILL_NOW)


def undo(context: Context, record: UnitRecord) -> None:
    """End a generation that this verb has begun, whoever cancels meanwhile."""
    context.phase(f"unit {record.unit}: ending generation {record.generation} again")
    end(generation_request(record), context.uncancellable(), Timing(record.unit))
    sweep_images(context, record.unit)


def note_start(context: Context, record: UnitRecord, kind: str, begin: float, **more: str) -> None:
    """Say which job of which pack made the generation, and when its clock began (boottime)."""
    paths = UnitStore(context.state_dir).paths(record.unit, record.generation)
    note = {"kind": kind, "boottime": begin, "job": context.job, "pack": context.pack}
    write_note(paths, START, {**note, **more})


def started(record: UnitRecord, timing: Timing) -> dict[str, Any]:
    """What a verb answers that has made a generation."""
    return {
        "generation": record.generation,
        "pid": record.init.pid if record.init else 0,
        "ports": [vars(port) for port in record.ports],
        "timing": timing.to_json(),
    }
