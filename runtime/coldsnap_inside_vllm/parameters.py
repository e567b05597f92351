"""A model's loaded parameters out to a payload pack, and back, by libcoldsnap_hydrate."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.pack import open_pack
from coldsnap_inside_vllm.parameter_table import Row, UnfitError, table_of, table_sha256
from coldsnap_inside_vllm.payload import INDEX, PACK
from coldsnap_runtime.hydrate import (
    Options,
    Session,
    Source,
    draft_io,
    hydrate_pack,
    load_library,
    write_draft,
)
from coldsnap_runtime.hydrate.structures import Place

if TYPE_CHECKING:
    from coldsnap_runtime.hydrate import Library

_PLACES = {"cuda": Place.CUDA, "cpu": Place.HOST}
_KIND = "loaded-parameters"


@dataclass(frozen=True)
class Moved:
    bytes: int
    tensors: int
    seconds: float = 0.0


def export_parameters(model: Any, folder: str) -> Moved:
    """Write `folder`/payload.pack and its index; they appear only when whole.

    They are a draft: a capture completes it.

    Raises:
        UnfitError: these parameters cannot be exported, or not here.
        ColdSnapError: ``file.*``, ``hydrate.*``; no payload is left then.
    """
    rows, kind, device = table_of(model)
    _settle(kind)
    target = Path(folder)
    for name in (INDEX, PACK):  # of an earlier start
        (target / name).unlink(missing_ok=True)
    sources = [Source(row.id, row.bytes, row.address, row.attributes) for row in rows]
    options = Options(attributes={"kind": _KIND, "table": table_sha256(rows)})
    io = draft_io(sum(row.bytes for row in rows))
    with Session(_library(), _place(kind), io=io, device=device) as session:
        written = write_draft(session, target / PACK, target / INDEX, sources, options)
    return Moved(written, len(rows))


def fill_parameters(model: Any, pack: str, index: str) -> Moved:
    """Fill the model's parameters out of a payload pack, every chunk checked on the way.

    Raises:
        UnfitError: the pack is of another model, or nothing can be loaded this way here.
        ColdSnapError: ``pack.*``, ``hydrate.*``; what is in the parameters is of no use then.
    """
    rows, kind, device = table_of(model)
    with open_pack(pack, index) as reader:
        attributes = reader.index.attributes
        if (attributes.get("kind"), attributes.get("table")) != (_KIND, table_sha256(rows)):
            raise UnfitError(_difference(rows, {e.id: e.length for e in reader.index.extents}))
        places = {row.id: row.address for row in rows}
        _settle(kind)
        with Session(_library(), _place(kind), device=device) as session:
            report = hydrate_pack(session, reader, places)
    return Moved(report.bytes, len(rows), report.seconds)


def why(error: Exception) -> str:
    """One line of what went wrong."""
    return f"{error.code}: {error.message}" if isinstance(error, ColdSnapError) else str(error)


def _difference(rows: list[Row], extents: dict[str, int]) -> str:
    mine = {row.id: row.bytes for row in rows}
    names = sorted(set(mine) ^ set(extents)) or sorted(n for n in mine if mine[n] != extents[n])
    first = names[0].removeprefix("model/") if names else "the types of some tensors"
    return f"the payload pack is of another model: {first} differs"


def _settle(kind: str) -> None:
    """Nothing that torch has begun is still to touch the tensors: the library has its own stream.

    While a model is made or loaded, kernels and copies are queued that nobody waits for.
    """
    if kind == "cuda":
        import torch  # noqa: PLC0415 - the engine's

        torch.cuda.synchronize()


def _place(kind: str) -> Place:
    if kind not in _PLACES:
        raise UnfitError(f"the model's tensors lie on a {kind} device")
    return _PLACES[kind]


def _library() -> Library:
    library = load_library()
    if library is None:
        raise UnfitError(f"libcoldsnap_hydrate cannot be used by process {os.getpid()}")
    return library
