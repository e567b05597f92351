"""Packs written in two steps, for an engine that must not wait: the bytes now, the name later.

SHA-256 of the body, a pack's identity, is the work of one core (1.2 to 1.9 GB/s); links and page
cache are ten times as fast. So `write_draft` leaves it out: the body with the digests of its
chunks, which all cores make on the way, in memory that the system writes back by itself.
`finish_draft`, after the engine serves again, reads the file, compares every chunk with what was
in the engine's memory, makes it durable and completes the index. Until then the index is one whose
SHA-256 digests are zeros: enough to bring the bytes back by, but nobody takes it for a pack's.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import fsync_dir, open_regular, read_regular
from coldsnap.artifact.pack_index import MAX_INDEX_BYTES, Body, Extent, PackIndex, read_index
from coldsnap_runtime.hydrate.packs import check_pack
from coldsnap_runtime.hydrate.session import Made, Session
from coldsnap_runtime.hydrate.structures import DIGEST_BYTES, Io, Place
from coldsnap_runtime.hydrate.writing import (
    Options,
    Source,
    index_of,
    publish_index,
    temporary_in,
    transfer_of,
    write_body,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldsnap.artifact.pack import PackRef
    from coldsnap_runtime.hydrate.library import Library
    from coldsnap_runtime.hydrate.session import Cancel, Progress

_UNKNOWN = bytes(DIGEST_BYTES)
"""Stands in a draft for each SHA-256 that is not made yet."""


def draft_io(size: int) -> Io:
    """How `size` bytes are best written: through the page cache where it has room for them.

    They are back from there at once, and the system writes them to the disk by itself.
    """
    try:
        rows = Path("/proc/meminfo").read_text("ascii").splitlines()
        found = next(int(row.split()[1]) for row in rows if row.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return Io.AUTO
    return Io.BUFFERED if 3 * size <= 2 * (found << 10) else Io.AUTO


def write_draft(
    session: Session,
    body: str | os.PathLike[str],
    index: str | os.PathLike[str],
    sources: Sequence[Source],
    options: Options | None = None,
) -> int:
    """Write a pack that `finish_draft` completes; the bytes of it. Nothing is durable yet.

    Args:
        session: place HOST or CUDA; `draft_io` says which io is best.
        body: the file of the bytes; what stood there is replaced by a whole one.
        index: the file that describes it.
        sources: ordered by id, ids unique, memory disjoint.
        options: as of `write_pack_as`.

    Raises:
        ColdSnapError: as `write_pack`; nothing is left then.
    """
    body_path, index_path = Path(body), Path(index)
    chosen = options or Options()
    temporary = temporary_in(body_path.parent)
    transfer = transfer_of(temporary, sources, chosen)
    transfer = replace(transfer, identity=False, is_durable=False)
    try:
        made = write_body(session, transfer)
        unknown = Made(made.chunks, _UNKNOWN * len(sources), _UNKNOWN)
        drafted = index_of(sources, transfer, unknown, chosen)
        index_path.unlink(missing_ok=True)
        temporary.replace(body_path)
        publish_index(body_path, index_path, drafted)
    finally:
        temporary.unlink(missing_ok=True)
    return transfer.file_bytes


def is_draft(index: PackIndex) -> bool:
    """Whether nobody has made the identity yet."""
    return index.body.sha256 == f"sha256:{_UNKNOWN.hex()}"


@dataclass(frozen=True)
class _Drafted:
    name: str
    index: PackIndex


def finish_draft(
    library: Library,
    body: str | os.PathLike[str],
    index: str | os.PathLike[str],
    *,
    threads: int = 0,
    cancel: Cancel | None = None,
    progress: Progress | None = None,
) -> PackRef:
    """Make a pack of a draft: every chunk compared, durable, identified, with its index.

    Args:
        library: the opened library.
        body: as `write_draft` left it.
        index: likewise; replaced at the end, so what was cut off can be done again.
        threads: that read and check; 0: chosen by the library.
        cancel: ends the call early.
        progress: gets bytes done and in all.

    Raises:
        ColdSnapError: ``pack.chunk-differs`` and what else `verify_pack` raises when the file is
            not what was in memory, ``pack.index-invalid``, ``file.*``; the draft stays then.
    """
    body_path, index_path = Path(body), Path(index)
    known = read_index(read_regular(index_path, MAX_INDEX_BYTES))
    with open_regular(body_path) as file:
        os.fsync(file.fileno())
    # Both passes read through the page cache: the first of them at each place fetches for both.
    with Session(library, Place.NOWHERE, io=Io.BUFFERED, threads=threads) as session:
        drafted = _Drafted(os.fspath(body_path), known)
        _, made = check_pack(session, drafted, identity=True, cancel=cancel, progress=progress)
    if made is None:
        raise ColdSnapError("hydrate.cancelled", f"{body_path}: cancelled")
    fsync_dir(body_path.parent)
    return publish_index(body_path, index_path, _identified(known, made))


def _identified(known: PackIndex, made: Made) -> PackIndex:
    def digest(number: int) -> str:
        return f"sha256:{made.extents[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES].hex()}"

    extents: tuple[Extent, ...] = tuple(
        replace(extent, sha256=digest(number)) for number, extent in enumerate(known.extents)
    )
    body = Body(known.body.bytes, f"sha256:{made.body.hex()}")
    return replace(known, body=body, extents=extents)
