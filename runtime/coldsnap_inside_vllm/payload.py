"""The weights of one worker, out to a payload pack and back, by libcoldsnap_hydrate.

The library is opened for one call and let go of again: what a captured process has mapped would
have to be there, unchanged, at every restore.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coldsnap.artifact.pack import open_pack
from coldsnap_inside_vllm.layout import Region, cover, layout_sha256
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
    from coldsnap.artifact.pack_index import Extent
    from coldsnap_runtime.hydrate import Library

PACK, INDEX = "payload.pack", "payload.index.json"
"""Names that announce a payload to the unit controller."""


class NoLibraryError(RuntimeError):
    """libcoldsnap_hydrate is not there, or not for this machine."""


@dataclass(frozen=True)
class Moved:
    bytes: int
    seconds: float = 0.0
    extents: int = 0


def export(
    folder: str, allocations: Sequence[Region], tensors: Iterable[tuple[str, Region]], device: int
) -> Moved:
    """Write `folder`/payload.pack and its index; they appear only when whole.

    They are a draft: the capture completes it when the engine serves again.

    Raises:
        NoLibraryError: nothing can be exported here.
        ColdSnapError: ``file.*``, ``hydrate.*``; no payload is left then.
    """
    target = Path(folder)
    for name in (INDEX, PACK):  # of an earlier capture
        (target / name).unlink(missing_ok=True)
    sources = [
        Source(
            part.id,
            part.bytes,
            allocations[part.allocation].address + part.offset,
            {"allocation": str(part.allocation), "offset": str(part.offset)},
        )
        for part in cover(allocations, tensors)
    ]
    options = Options(attributes={"layout": layout_sha256(allocations)})
    io = draft_io(sum(source.length for source in sources))
    with _library() as library, Session(library, Place.CUDA, io=io, device=device) as session:
        written = write_draft(session, target / PACK, target / INDEX, sources, options)
    return Moved(written, extents=len(sources))


def load(pack: str, index: str, allocations: Sequence[Region], device: int) -> Moved:
    """Fill `allocations` out of a payload pack, every chunk checked.

    Raises:
        NoLibraryError: nothing can be loaded this way here.
        ColdSnapError: ``pack.*``, ``hydrate.*``; what is in the memory is of no use then.
        RuntimeError: the pack is of another layout.
    """
    with open_pack(pack, index) as reader:
        places = places_of(reader.index.extents, allocations, reader.index.attributes.get("layout"))
        with _library() as library, Session(library, Place.CUDA, device=device) as session:
            report = hydrate_pack(session, reader, places)
    return Moved(report.bytes, round(report.seconds, 4), len(places))


def places_of(
    extents: Sequence[Extent], allocations: Sequence[Region], layout: str | None
) -> dict[str, int]:
    """Extent -> address. The extents must fill the allocations to the byte."""
    if layout != layout_sha256(allocations):
        raise RuntimeError("the payload pack is of another memory layout")
    filled = [0] * len(allocations)
    places: dict[str, int] = {}
    for extent in extents:
        number = int(extent.attributes["allocation"])
        offset = int(extent.attributes["offset"])
        if not 0 <= number < len(allocations) or offset < 0:
            raise RuntimeError(f"extent {extent.id} names no memory of the weights")
        if offset + extent.length > allocations[number].bytes:
            raise RuntimeError(f"extent {extent.id} reaches beyond its allocation")
        filled[number] += extent.length
        places[extent.id] = allocations[number].address + offset
    if filled != [region.bytes for region in allocations]:
        raise RuntimeError("the payload pack does not cover the memory of the weights")
    return places


def opened_library() -> Library:
    """Raises NoLibraryError."""
    library = load_library()
    if library is None:
        raise NoLibraryError(f"libcoldsnap_hydrate cannot be used by process {os.getpid()}")
    return library


@contextlib.contextmanager
def _library() -> Iterator[Library]:
    library = opened_library()
    try:
        yield library
    finally:
        library.unload()
