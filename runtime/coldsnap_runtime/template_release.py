"""A parked template is let go on as its engine, with the placement of its host."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.files import write_atomic
from coldsnap_runtime.engine_door import door_of
from coldsnap_runtime.generation_notes import read_note, write_note
from coldsnap_runtime.template_files import FOLDER, GIVEN_PLAN, RELEASE, told_folder
from coldsnap_runtime.unit_init import INSIDE_CONTROL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldsnap_runtime.http_calls import HttpCall
    from coldsnap_runtime.timing import Timing
    from coldsnap_runtime.unit_record import GenerationPaths, UnitRecord, UnitStore

HANDED = "handed-over.json"
"""Note of a restored generation: the environment that its template will be released with."""
_INSIDE = f"{INSIDE_CONTROL}/{FOLDER}"
_LONGEST_START = 900.0


def hand_over(
    paths: GenerationPaths, template: Mapping[str, Any], devices: Sequence[int] | None
) -> None:
    """Leave for a restored template what its release will give it.

    Args:
        paths: of the generation.
        template: as the capture has it.
        devices: indices of this host's GPUs, in order; None for a unit without.
    """
    env: dict[str, str] = {}
    if template.get("plan"):
        folder = told_folder(paths)
        write_atomic(folder / GIVEN_PLAN, json.dumps(template["plan"]).encode(), 0o600)
        env["COLDSNAP_STARTUP_PLAN"] = f"{_INSIDE}/{GIVEN_PLAN}"
    if devices is not None:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, devices))
    write_note(paths, HANDED, {"env": env})


def start_restored(
    store: UnitStore, record: UnitRecord, ready: HttpCall, provider: str, timing: Timing
) -> HttpCall:
    """Release a restored template; the call that waits for its engine, which may take long."""
    paths = store.paths(record.unit, record.generation)
    places = door_of(store, record).places
    env = {
        **read_note(paths, HANDED).get("env", {}),
        "COLDSNAP_PAYLOAD": places["payload"],
        "COLDSNAP_PAYLOAD_INDEX": places["index"],
        "COLDSNAP_PROVIDER": provider,
    }
    with timing.span("release"):
        release(paths, env)
    return replace(ready, retry_seconds=max(ready.retry_seconds, _LONGEST_START))


def release(paths: GenerationPaths, env: Mapping[str, str]) -> None:
    """Let the parked template go on as the engine; a second release changes nothing."""
    folder = told_folder(paths)
    write_atomic(folder / RELEASE, json.dumps({"env": dict(env)}).encode(), 0o600)
