"""A pack written by the library: one pass over host or device memory."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from coldsnap.artifact.decode import recheck
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import fsync_dir, write_atomic
from coldsnap.artifact.pack import PackRef
from coldsnap.artifact.pack_index import (
    CHUNK_BYTES,
    Body,
    Chunking,
    Extent,
    PackIndex,
    padded,
    tree_digest,
)
from coldsnap_runtime.hydrate.packs import ALGORITHMS
from coldsnap_runtime.hydrate.session import Cancel, Made, Progress, Session, Transfer
from coldsnap_runtime.hydrate.structures import DIGEST_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

Names = tuple[Path, Path]


@dataclass(frozen=True)
class Source:
    """Memory that becomes an extent."""

    id: str
    length: int
    address: int
    """Of host or device memory, as the session's place says; it must not change meanwhile."""
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """How a pack is written."""

    chunk_bytes: int = CHUNK_BYTES
    """Multiple of 4096."""
    algorithm: Literal["sha256", "blake3"] = "blake3"
    """Of the chunk digests."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Up to 32 texts kept in the index."""
    seconds: float = 0
    """Deadline; 0: none."""
    cancel: Cancel | None = None
    progress: Progress | None = None
    """Gets bytes done and in all."""


def write_pack(
    session: Session,
    directory: str | os.PathLike[str],
    sources: Sequence[Source],
    *,
    chunk_bytes: int = CHUNK_BYTES,
    algorithm: Literal["sha256", "blake3"] = "blake3",
    attributes: Mapping[str, str] | None = None,
    seconds: float = 0,
    cancel: Cancel | None = None,
    progress: Progress | None = None,
) -> PackRef:
    """Write ``directory/sha256/<hex>.pack`` and its index: the body that `pack.write_pack` makes.

    Args:
        session: place HOST or CUDA.
        directory: folder of packs.
        sources: ordered by id, ids unique, memory disjoint.
        chunk_bytes: multiple of 4096.
        algorithm: of the chunk digests.
        attributes: up to 32 texts kept in the index.
        seconds: deadline; 0: none.
        cancel: ends the call early.
        progress: gets bytes done and in all.

    Raises:
        ColdSnapError: ``pack.unsorted``, ``pack.duplicate``, ``pack.index-invalid``,
            ``file.disk-full``, ``file.unwritable``, ``hydrate.*``; nothing is left of it then.
    """
    folder = Path(directory) / "sha256"
    folder.mkdir(parents=True, exist_ok=True)

    def name(index: PackIndex) -> Names:
        digits = index.body.sha256.removeprefix("sha256:")
        return folder / f"{digits}.pack", folder / f"{digits}.index.json"

    options = Options(chunk_bytes, algorithm, attributes or {}, seconds, cancel, progress)
    return _write_named(session, folder, name, sources, options)


def write_pack_as(
    session: Session,
    body: str | os.PathLike[str],
    index: str | os.PathLike[str],
    sources: Sequence[Source],
    options: Options | None = None,
) -> PackRef:
    """Write a pack under given names; what stood there is replaced only by a whole pack.

    Raises:
        ColdSnapError: as `write_pack`.
    """
    paths = Path(body), Path(index)
    return _write_named(session, paths[0].parent, lambda _: paths, sources, options or Options())


def _write_named(
    session: Session,
    folder: Path,
    name: Callable[[PackIndex], Names],
    sources: Sequence[Source],
    options: Options,
) -> PackRef:
    temporary = temporary_in(folder)
    transfer = transfer_of(temporary, sources, options)
    made = write_body(session, transfer)
    try:
        index = index_of(sources, transfer, made, options)
        return _publish(temporary, name(index), index)
    finally:
        temporary.unlink(missing_ok=True)


def temporary_in(folder: Path) -> Path:
    """A name that no reader takes for a pack."""
    return folder / f".pack.{secrets.token_hex(8)}.tmp"


def transfer_of(path: Path, sources: Sequence[Source], options: Options) -> Transfer:
    """The call that writes `sources` to the file `path`.

    Raises:
        ColdSnapError: ``pack.unsorted``, ``pack.duplicate``.
    """
    _check_order(sources)
    entries = list(_entries(sources))
    return Transfer(
        path=os.fspath(path),
        file_bytes=entries[-1][0] + padded(entries[-1][1]) if entries else 0,
        extents=entries,
        chunk_bytes=options.chunk_bytes,
        algorithm=ALGORITHMS[options.algorithm],
        digest_count=sum(-(-source.length // options.chunk_bytes) for source in sources),
        seconds=options.seconds,
        cancel=options.cancel,
        progress=options.progress,
    )


def write_body(session: Session, transfer: Transfer) -> Made:
    """Write the file.

    Raises:
        ColdSnapError: ``file.disk-full``, ``file.unwritable``, ``hydrate.*``; nothing is left then.
    """
    try:
        return session.write(transfer)[1]
    except ColdSnapError as error:
        if error.code == "file.unreadable":
            raise ColdSnapError("file.unwritable", error.message) from error
        raise


def _publish(temporary: Path, names: Names, index: PackIndex) -> PackRef:
    body_path, index_path = names
    # An older index must not stand beside the new body, not even for a moment.
    index_path.unlink(missing_ok=True)
    temporary.replace(body_path)
    fsync_dir(temporary.parent)
    return publish_index(body_path, index_path, index)


def publish_index(body_path: Path, index_path: Path, index: PackIndex) -> PackRef:
    """Write the index of a body that has its name."""
    data = index.to_bytes()
    write_atomic(index_path, data, 0o400)
    index_sha256 = "sha256:" + hashlib.sha256(data).hexdigest()
    return PackRef(
        body_path, index_path, index.body.bytes, index.body.sha256, len(data), index_sha256
    )


def _check_order(sources: Sequence[Source]) -> None:
    for before, source in pairwise(sources):
        if source.id <= before.id:
            reason = "duplicate" if source.id == before.id else "unsorted"
            message = f"extent {source.id!r} comes after {before.id!r}; extents go by id"
            raise ColdSnapError(f"pack.{reason}", message)


def _entries(sources: Sequence[Source]) -> Iterator[tuple[int, int, int]]:
    at = 0
    for source in sources:
        yield at, source.length, source.address
        at += padded(source.length)


def index_of(
    sources: Sequence[Source],
    transfer: Transfer,
    made: Made,
    options: Options,
) -> PackIndex:
    """The index of what was written.

    Raises:
        ColdSnapError: ``pack.index-invalid`` for ids or attributes that an index cannot hold.
    """
    chunking = Chunking(options.chunk_bytes, options.algorithm)
    extents = []
    first = 0
    for number, source in enumerate(sources):
        last = first + -(-source.length // chunking.bytes)
        chunks = tuple(
            made.chunks[i * DIGEST_BYTES : (i + 1) * DIGEST_BYTES].hex() for i in range(first, last)
        )
        first = last
        digest = made.extents[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES].hex()
        extents.append(
            Extent(
                id=source.id,
                offset=transfer.extents[number][0],
                length=source.length,
                sha256=f"sha256:{digest}",
                chunks=chunks,
                tree=tree_digest(chunks),
                attributes=dict(source.attributes),
            )
        )
    body = Body(transfer.file_bytes, f"sha256:{made.body.hex()}")
    index = PackIndex(body, chunking, tuple(extents), attributes=dict(options.attributes))
    return recheck(index, what="pack index", code="pack.index-invalid")
