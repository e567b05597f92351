"""How a generation started cold, kept beside its record and carried into its capture.

``{"seconds": 49.8, "phases": [{"name": "ready", "start": 0.2, "seconds": 48.9, "depth": 0}]}``:
seconds since the launch was received, so that a restore can be laid beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coldsnap_runtime.generation_notes import FIRST_TOKEN, START, read_note, write_note

if TYPE_CHECKING:
    from coldsnap_runtime.timing import Timing
    from coldsnap_runtime.unit_record import GenerationPaths

COLD = "cold-start.json"
_MOST = 256


def note_cold_start(paths: GenerationPaths, timing: Timing) -> None:
    """Keep the spans of a launch."""
    write_note(paths, COLD, {"timing": timing.to_json()})


def cold_start(paths: GenerationPaths) -> dict[str, Any] | None:
    """What is known of the generation's cold start; None for one that was restored."""
    start, kept = read_note(paths, START), read_note(paths, COLD)
    origin = start.get("boottime")
    if start.get("kind") != "launch" or not kept or not isinstance(origin, float):
        return None
    spans = kept["timing"]["spans"]
    parents = {span["id"]: span.get("parent") for span in spans}
    phases = [
        {
            "name": span["name"],
            "start": round(max(0.0, span["start_offset_seconds"] - origin), 6),
            "seconds": span["duration_seconds"],
            "depth": _depth(span["id"], parents),
        }
        for span in spans[:_MOST]
    ]
    first = read_note(paths, FIRST_TOKEN)
    found: dict[str, Any] = {"seconds": None, "phases": phases}
    if first.get("first_token_from") == "launch":
        asked = first["request_to_first_token_seconds"]
        found["seconds"] = first["first_token_seconds"]
        begin = round(max(0.0, first["first_token_seconds"] - asked), 6)
        phases.append({"name": "first-token", "start": begin, "seconds": asked, "depth": 0})
    return found


def _depth(identity: str, parents: dict[str, str | None]) -> int:
    depth, parent = 0, parents.get(identity)
    while parent is not None:
        depth, parent = depth + 1, parents.get(parent)
    return depth
