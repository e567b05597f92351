"""The verb ``unit.restore``: an artifact back as a new generation, in one process.

It ends where the request says: with the restored process tree, or, with ``then``, after hydration
and the acceptance. Then the target does not wait for its controller on the way to the first
token; what fails on the way undoes the whole generation. Nothing is exposed before the last stage.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap_runtime import image_folders, lease
from coldsnap_runtime.activation import Stages, stages_of
from coldsnap_runtime.generation_notes import PAYLOAD, write_note
from coldsnap_runtime.host_room import check_ports
from coldsnap_runtime.image_check import hash_image
from coldsnap_runtime.image_readahead import read_ahead
from coldsnap_runtime.mapped_image import protect
from coldsnap_runtime.providers import choose, payload_of, policy_of
from coldsnap_runtime.request_fields import known_fields, text_of
from coldsnap_runtime.restore_rungs import MMAP
from coldsnap_runtime.timing import Timing, boottime
from coldsnap_runtime.unit_lifecycle import (
    expose_now,
    installation_of,
    note_start,
    started,
    stop_orphans,
    undo,
)
from coldsnap_runtime.unit_record import UnitStore
from coldsnap_runtime.unit_requests import RestoreRequest
from coldsnap_runtime.unit_restore import restore_by_ladder as bring_back

if TYPE_CHECKING:
    from coldsnap.artifact.validation import Policy
    from coldsnap_runtime.context import Context
    from coldsnap_runtime.image_folders import Image
    from coldsnap_runtime.providers import Choice
    from coldsnap_runtime.unit_restore import Restored

_FIELDS = (
    "unit run store artifact ports mounts devices verify image_mode deadline expose criu ready "
    "then provider"
)


def restore(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """Bring an artifact back as a new generation; older ones are untouched.

    Its state is ``restored``; with ``then: {hydrate}`` it is ``hydrated``, with ``then: {hydrate,
    accept}`` it gave the recorded answers and is ``serving``.

    Raises:
        ColdSnapError: ``store.*`` (a damaged or missing file, by name), ``provider.*``,
            ``recovery.*`` (see `providers`), ``restore.*``, ``criu.*``, and those of unit.hydrate
            and unit.accept; nothing of the generation is left then.
    """
    known_fields(value, _FIELDS, "unit.restore")
    unit, run = text_of(value, "unit", "unit.restore"), text_of(value, "run", "unit.restore")
    first = RestoreRequest.from_json(value, Path("/"))
    stages = stages_of(value.get("then"), unit, run)
    with lease.held(context.state_dir, unit, run):
        stop_orphans(context, unit)
        timing = Timing(unit)
        timing.add("runtime-start", context.received, boottime() - context.received)
        image, choice = _verified(value, first, stages, context, timing)
        try:
            done = _brought_back(value, first, image, context, timing)
            record = done.record
        except BaseException:
            image_folders.drop(context, unit, image.token)
            raise
        try:
            further = _gone_through(done, image, choice, stages, context, timing)
            if value.get("expose"):
                expose_now(context, record, installation_of(value, context), timing)
        except BaseException:
            undo(context, record)
            raise
    recorded = {
        "answers": list(image.answers),
        "cold_start_seconds": image.cold_start_seconds,
        "cold_start": image.cold_start,
        "sizes": dict(image.sizes),
    }
    return {
        **started(record, timing),
        **further,
        "t0_boottime": context.received,
        "bytes": image.bytes,
        "process_image": done.process_image,
        "provider": (further.get("hydrated") or {}).get("provider") or choice.to_json(),
        "recorded": recorded,
    }


def _verified(
    value: dict[str, Any], first: RestoreRequest, stages: Stages, context: Context, timing: Timing
) -> tuple[Image, Choice]:
    """The artifact's files, every one checked, and all that is asked later known to be there."""
    store = Path(text_of(value, "store", "unit.restore").removeprefix("oci-layout:"))
    policy: Policy = "full" if first.verify == "full" else "record"
    provider = policy_of(value, "unit.restore")
    context.phase(f"verifying {first.artifact}")
    with timing.span("verify", policy=policy) as span:
        image = image_folders.lay_out(
            context, first.unit, store, first.artifact, policy, payload_of(provider)
        )
        span.note(bytes_checked=image.bytes, bytes_hashed=image.bytes_hashed)
    try:
        if first.verify == "digest":
            with timing.span("verify-small"):
                hash_image(store, first.artifact, image.folder, pages=False)
        choice = choose(provider, image, first.mounts, context, str(store))
        stages.expect(image.answers)
        check_ports(first.ports, UnitStore(context.state_dir).generations(first.unit))
    except BaseException:
        image_folders.drop(context, first.unit, image.token)
        raise
    # Not the payload: hydration reads it in its own way, past the page cache where that is faster.
    read_ahead(image.folder / "images")
    stages.prepare()
    return image, choice


def _brought_back(
    value: dict[str, Any], first: RestoreRequest, image: Image, context: Context, timing: Timing
) -> Restored:
    store = Path(text_of(value, "store", "unit.restore").removeprefix("oci-layout:"))
    request = replace(
        first,
        image=image.folder,
        payloads=image.payloads,
        check_pages=lambda: hash_image(store, first.artifact, image.folder, pages=True),
    )
    if "deadline" in value:
        request = replace(request, deadline=float(value["deadline"]))
    with timing.span("restore"):
        done = bring_back(request, context, installation_of(value, context), timing)
    if done.process_image.get("rung") == MMAP:
        done.process_image["immutable"] = protect(image.folder) or True
    return done


def _gone_through(
    done: Restored,
    image: Image,
    choice: Choice,
    stages: Stages,
    context: Context,
    timing: Timing,
) -> dict[str, Any]:
    store, record = UnitStore(context.state_dir), done.record
    paths = store.paths(record.unit, record.generation)
    write_note(paths, PAYLOAD, {"bytes": image.payload_bytes, "choice": choice.to_json()})
    rung = str(done.process_image.get("rung") or "")
    note_start(context, record, "restore", context.received, image=image.token, rung=rung)
    return stages.run(store, record, image.answers, timing, context)
