"""Sizes of a capture that its files do not tell: KV thrown away, payload bytes of no model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import read_regular
from coldsnap.artifact.weights import PAYLOAD_INDEX_ROLE
from coldsnap_runtime.generation_notes import QUIESCED, read_note, write_note

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from coldsnap_runtime.unit_record import GenerationPaths

_RESIDUAL = "residual/"
"""How engines name extents between those of the model."""


def note_quiesced(paths: GenerationPaths, answers: Iterable[Any]) -> None:
    """Keep what the engine said that it gave back."""
    told = [answer.get("kv_bytes") for answer in answers if isinstance(answer, dict)]
    write_note(paths, QUIESCED, {"kv_bytes": sum(n for n in told if type(n) is int and n >= 0)})


def engine_sizes(
    paths: GenerationPaths, folder: Path, payloads: Sequence[Mapping[str, Any]]
) -> dict[str, int]:
    """``kv_discarded`` and, with a payload, ``residual``: bytes."""
    # Not loaded by a restore, which shares this module.
    from coldsnap.artifact.pack_index import MAX_INDEX_BYTES, read_index  # noqa: PLC0415

    found: dict[str, int] = {}
    kept = read_note(paths, QUIESCED).get("kv_bytes")
    if isinstance(kept, int) and kept:
        found["kv_discarded"] = kept
    for item in payloads:
        if item["role"] != PAYLOAD_INDEX_ROLE:
            continue
        try:
            index = read_index(read_regular(folder / str(item["path"]), MAX_INDEX_BYTES))
        except ColdSnapError:
            continue  # whoever publishes it says so
        residual = [e.length for e in index.extents if e.id.startswith(_RESIDUAL)]
        found["residual"] = sum(residual)
    return found
