"""Payload packs: writing one in one pass, reading it with every byte checked.

Writing (the engine's side, or anybody's)::

    extents = [("model.embed", len(buffer), buffer), ...]      # ordered by id
    pack = write_pack(directory, extents)                      # directory/sha256/<hex>.pack
    pack = write_pack_as(body_path, index_path, extents)       # names of your choice

A source is anything with the buffer protocol (memoryview, bytes, a NumPy array) or with
``readinto``. Reading::

    with open_pack(body_path, index_path, index_sha256=...) as pack:
        pack.read("model.embed")            # bytes, verified
        pack.read_into("model.embed", buffer)
        pack.verify()                       # everything: padding and the body's digest too

A reader never sees half a pack: the body gets its name when it is whole and durable, the index
after it, and a pack without its index is not opened.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.decode import recheck
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import file_error, fsync_dir, write_atomic
from coldsnap.artifact.pack_index import (
    ALIGNMENT,
    CHUNK_BYTES,
    Body,
    Chunking,
    Extent,
    PackIndex,
    padded,
    tree_digest,
)
from coldsnap.artifact.pack_reader import PackReader, open_pack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import BinaryIO

__all__ = [
    "ExtentSource",
    "PackReader",
    "PackRef",
    "open_pack",
    "write_pack",
    "write_pack_as",
]

_ZEROS = bytes(ALIGNMENT)


@dataclass(frozen=True)
class ExtentSource:
    """An extent to write; plain (id, length, source) tuples are taken too."""

    id: str
    length: int
    source: Any
    """Buffer of exactly `length` bytes, or an object with ``readinto``."""
    attributes: Mapping[str, str] | None = None


@dataclass(frozen=True)
class PackRef:
    """A finished pack."""

    body: Path
    index: Path
    bytes: int
    """Of the body."""
    sha256: str
    """Identity: ``sha256:<hex>`` of the body."""
    index_bytes: int
    index_sha256: str


Sources = Iterable["ExtentSource | tuple[str, int, Any]"]


def write_pack(
    directory: str | os.PathLike[str],
    extents: Sources,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    attributes: Mapping[str, str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> PackRef:
    """Write ``directory/sha256/<hex>.pack`` and ``<hex>.index.json``; see `write_pack_as`.

    A pack of the same bytes that is already there is replaced by its equal.
    """
    folder = Path(directory) / "sha256"
    folder.mkdir(parents=True, exist_ok=True)

    def name(index: PackIndex) -> tuple[Path, Path]:
        digits = index.body.sha256.removeprefix("sha256:")
        return folder / f"{digits}.pack", folder / f"{digits}.index.json"

    return _write(folder, name, extents, _Options(chunk_bytes, attributes or {}, progress))


def write_pack_as(
    body: str | os.PathLike[str],
    index: str | os.PathLike[str],
    extents: Sources,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    attributes: Mapping[str, str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> PackRef:
    """Write a pack under given names, in one pass over the sources.

    Args:
        body: path of the bytes; what stood there is replaced only by a whole pack.
        index: path of the description.
        extents: ordered by id (code points), ids unique.
        chunk_bytes: multiple of 4096.
        attributes: up to 32 texts kept in the index.
        progress: gets the bytes of the body written so far.

    Raises:
        ColdSnapError: ``pack.unsorted``, ``pack.duplicate``, ``pack.source-short``,
            ``pack.source-long``, ``pack.source-failed``, ``pack.index-invalid``;
            ``file.disk-full``, ``file.read-only``, ``file.unwritable``.
    """
    paths = Path(body), Path(index)
    options = _Options(chunk_bytes, attributes or {}, progress)
    return _write(paths[0].parent, lambda _: paths, extents, options)


@dataclass(frozen=True)
class _Options:
    chunk_bytes: int
    attributes: Mapping[str, str]
    progress: Callable[[int], None] | None


def _write(
    folder: Path,
    name: Callable[[PackIndex], tuple[Path, Path]],
    extents: Sources,
    options: _Options,
) -> PackRef:
    with _temporary(folder) as (file, temporary):
        writer = _BodyWriter(file, options)
        for extent in extents:
            writer.add(extent if isinstance(extent, ExtentSource) else ExtentSource(*extent))
        index = writer.finish()
        data = index.to_bytes()
        body_path, index_path = name(index)
        # An older index must not stand beside the new body, not even for a moment.
        index_path.unlink(missing_ok=True)
        temporary.replace(body_path)
        fsync_dir(folder)
    write_atomic(index_path, data, 0o400)
    index_sha256 = "sha256:" + hashlib.sha256(data).hexdigest()
    return PackRef(
        body_path, index_path, index.body.bytes, index.body.sha256, len(data), index_sha256
    )


@contextmanager
def _temporary(folder: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A new file in `folder`, gone at the end unless it was renamed."""
    path = folder / f".pack.{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(path, flags, 0o400), "wb") as file:
            yield file, path
    except OSError as error:
        raise file_error(error, folder) from error
    finally:
        path.unlink(missing_ok=True)


class _BodyWriter:
    def __init__(self, file: BinaryIO, options: _Options) -> None:
        self._file = file
        self._options = options
        self._chunking = Chunking(options.chunk_bytes)
        self._block = memoryview(bytearray(options.chunk_bytes))
        self._body = hashlib.sha256()
        self._extents: list[Extent] = []
        self._at = 0

    def add(self, source: ExtentSource) -> None:
        _check_next(self._extents, source.id)
        offset = self._at
        whole = hashlib.sha256()
        chunks: list[str] = []
        for chunk in self._chunks(source):
            digest = hashlib.sha256(chunk)
            chunks.append(digest.hexdigest())
            whole.update(chunk)
            self._put(chunk)
        self._put(_ZEROS[: padded(source.length) - source.length])
        self._extents.append(
            Extent(
                id=source.id,
                offset=offset,
                length=source.length,
                sha256="sha256:" + whole.hexdigest(),
                chunks=tuple(chunks),
                tree=tree_digest(chunks),
                attributes=dict(source.attributes or {}),
            )
        )

    def finish(self) -> PackIndex:
        """Make the body durable and describe it."""
        self._file.flush()
        os.fsync(self._file.fileno())
        body = Body(self._at, "sha256:" + self._body.hexdigest())
        index = PackIndex(
            body, self._chunking, tuple(self._extents), attributes=dict(self._options.attributes)
        )
        return recheck(index, what="pack index", code="pack.index-invalid")

    def _put(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._body.update(data)
        self._at += len(data)
        if self._options.progress is not None:
            self._options.progress(self._at)

    def _chunks(self, source: ExtentSource) -> Iterator[memoryview]:
        size = self._chunking.bytes
        if not hasattr(source.source, "readinto"):
            view = memoryview(source.source).cast("B")
            _check_length(source, len(view))
            for start in range(0, source.length, size):
                yield view[start : start + size]
            return
        for start in range(0, source.length, size):
            block = self._block[: min(size, source.length - start)]
            _fill(source, block)
            yield block


def _check_next(extents: list[Extent], current: str) -> None:
    if extents and current <= extents[-1].id:
        reason = "duplicate" if current == extents[-1].id else "unsorted"
        message = f"extent {current!r} comes after {extents[-1].id!r}; extents go by id"
        raise ColdSnapError(f"pack.{reason}", message)


def _check_length(source: ExtentSource, found: int) -> None:
    if found != source.length:
        reason = "short" if found < source.length else "long"
        message = f"extent {source.id!r}: {source.length} bytes announced, {found} given"
        raise ColdSnapError(f"pack.source-{reason}", message)


def _fill(source: ExtentSource, block: memoryview) -> None:
    filled = 0
    while filled < len(block):
        try:
            count = source.source.readinto(block[filled:])
        except OSError as error:
            message = f"extent {source.id!r}: its source failed: {error}"
            raise ColdSnapError("pack.source-failed", message) from error
        if not count:
            message = f"extent {source.id!r}: its source ended before {source.length} bytes"
            raise ColdSnapError("pack.source-short", message)
        filled += count
