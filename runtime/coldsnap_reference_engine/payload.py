"""The payload: the weights as a pack, written while serving, read back verified.

Both are done by libcoldsnap_hydrate where the runtime pack has it, which is loaded for that time
only: an engine that is captured has it not mapped. Otherwise they are done here, slower.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import open_regular
from coldsnap.artifact.pack import PackReader, open_pack, write_pack_as
from coldsnap.artifact.pack_index import padded
from coldsnap_reference_engine.timeline import log
from coldsnap_reference_engine.weights import Extent, Weights
from coldsnap_runtime.hydrate import (
    Options,
    Session,
    Source,
    draft_io,
    hydrate_pack,
    load_library,
)
from coldsnap_runtime.hydrate import write_pack_as as write_natively
from coldsnap_runtime.hydrate.structures import Io

PACK = "payload.pack"
INDEX = "payload.index.json"


@dataclass(frozen=True)
class Written:
    """The pack that holds this engine's weights; remembered across a snapshot."""

    sha256: str
    bytes: int
    index_sha256: str


def export(weights: Weights, folder: Path, plan_digest: str) -> Written:
    """Write the pack into `folder`.

    Raises:
        ColdSnapError: what `write_pack_as` raises.
    """
    attributes = {"plan": plan_digest}
    # Through the page cache: that is where the next restore takes it from.
    with _session(draft_io(sum(extent.length for extent in weights.extents))) as session:
        if session is None:
            pack = write_pack_as(
                folder / PACK, folder / INDEX, weights.sources(), attributes=attributes
            )
        else:
            # The digests that the writer in Python makes: which of them wrote it must not show.
            options = Options(algorithm="sha256", attributes=attributes)
            sources = [
                Source(source.id, source.length, address, source.attributes or {})
                for source, address in zip(weights.sources(), weights.addresses(), strict=True)
            ]
            pack = write_natively(session, folder / PACK, folder / INDEX, sources, options)
    return Written(pack.sha256, pack.bytes, pack.index_sha256)


def check(weights: Weights, expected: Written) -> None:
    """Raise ColdSnapError ``payload.model-changed`` unless the weights are those of that pack."""
    hasher = hashlib.sha256()
    for extent in weights.extents:
        hasher.update(weights.bytes_of(extent).data)
        hasher.update(bytes(padded(extent.length) - extent.length))
    if "sha256:" + hasher.hexdigest() != expected.sha256:
        raise ColdSnapError(
            "payload.model-changed",
            "the model folder no longer holds the weights that this engine had",
            remedy="put the model's files back, or start the engine anew",
        )


def fill(weights: Weights, body: Path, index: Path, expected: Written | None, threads: int) -> int:
    """Copy a pack into the weights' memory, every chunk's digest checked; the bytes copied.

    Args:
        weights: their layouts are those of the pack.
        body: the pack.
        index: its index.
        expected: the pack that this engine wrote; None takes any whose extents fit.
        threads: how many read and check at once where that is done in Python.

    Raises:
        ColdSnapError: what `open_pack` and its `read_into` raise, ``payload.other-extents``.
    """
    weights.region.expect_all()
    with _open(weights, body, index, expected) as pack, _session() as session:
        if session is None:
            _fill_by_threads(weights, pack, threads)
        else:
            ids = (extent.id for extent in weights.extents)
            report = hydrate_pack(session, pack, dict(zip(ids, weights.addresses(), strict=True)))
            stages = ", ".join(f"{name} {spent:.2f}" for name, spent in report.stages.items())
            log(
                f"payload: {report.seconds:.3f} s, {report.direct_bytes} of {report.bytes} bytes "
                f"by O_DIRECT; seconds of all threads: {stages}"
            )
        return pack.index.body.bytes


@contextmanager
def _session(io: Io = Io.AUTO) -> Iterator[Session | None]:
    """A session of the library, which is unmapped afterwards; None where there is none."""
    library = load_library()
    if library is None:
        yield None
        return
    try:
        with Session(library, io=io) as session:
            yield session
    finally:
        library.unload()


def _fill_by_threads(weights: Weights, pack: PackReader, threads: int) -> None:
    # Largest last, so that it is taken first and no thread is left with a long one at the end.
    queue = sorted(weights.extents, key=lambda extent: extent.length)
    errors: list[Exception] = []

    def work() -> None:
        while queue and not errors:
            try:
                extent = queue.pop()
                pack.read_into(extent.id, weights.bytes_of(extent))
            except IndexError:
                return
            except Exception as error:  # noqa: BLE001 - raised below, in the caller's thread
                errors.append(error)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]


def map_pack(
    weights: Weights, body: Path, index: Path, expected: Written | None, *, verified: bool
) -> int:
    """Map a pack over the weights' memory, copy on write; its bytes.

    With `verified` the caller vouches for the file's bytes; otherwise they are read and checked
    first. The file must not change while the engine lives.

    Raises:
        ColdSnapError: as `fill`.
    """
    with _open(weights, body, index, expected) as pack:
        if not verified:
            pack.verify()
        with open_regular(body) as file:
            if os.fstat(file.fileno()).st_size != pack.index.body.bytes:
                raise ColdSnapError("pack.grown", f"{body} changed its size")
            weights.region.map_file(file.fileno(), pack.index.body.bytes)
        return pack.index.body.bytes


def _open(weights: Weights, body: Path, index: Path, expected: Written | None) -> PackReader:
    pack = open_pack(
        body,
        index,
        index_sha256=expected.index_sha256 if expected else None,
        body_sha256=expected.sha256 if expected else None,
    )
    try:
        _check_extents(weights, pack)
    except ColdSnapError:
        pack.close()
        raise
    return pack


def _check_extents(weights: Weights, pack: PackReader) -> None:
    """The pack must say of each extent what this engine would say of its own."""
    found = [(e.id, e.offset, e.length, e.attributes.get("layout")) for e in pack.extents]
    wanted = [_described(weights, extent) for extent in weights.extents]
    for have, want in zip(found, wanted, strict=False):
        if have != want:
            raise ColdSnapError(
                "payload.other-extents",
                f"{pack.name} holds {have[0]!r} where {want[0]!r} is expected",
                details=(f"found {have}", f"expected {want}"),
                remedy="give the payload pack that belongs to this capture",
            )
    if len(found) != len(wanted):
        message = f"{pack.name} has {len(found)} extents, the engine {len(wanted)}"
        raise ColdSnapError("payload.other-extents", message)


def _described(weights: Weights, extent: Extent) -> tuple[str, int, int, str | None]:
    return extent.id, extent.offset, extent.length, weights.layout_of(extent).name
