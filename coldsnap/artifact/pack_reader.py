"""Reading a payload pack: list, read an extent with its chunks checked, verify all or a part."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import open_regular, read_regular
from coldsnap.artifact.pack_index import (
    MAX_INDEX_BYTES,
    PAYLOAD_REMEDY,
    Extent,
    PackIndex,
    read_index,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType
    from typing import BinaryIO


def open_pack(
    body: str | os.PathLike[str],
    index: str | os.PathLike[str],
    *,
    index_sha256: str | None = None,
    body_sha256: str | None = None,
) -> PackReader:
    """Open a pack whose index is well-formed and whose body has the size that it says.

    Args:
        body: path; symbolic links, FIFOs and devices are refused.
        index: path, same.
        index_sha256: digest of the index file, from the descriptor that vouches for it.
        body_sha256: the identity wanted.

    Raises:
        ColdSnapError: ``file.missing``, ``file.not-regular``, ``pack.index-differs``,
            ``pack.body-differs`` (another pack than wanted), ``pack.short``, ``pack.grown``, and
            what `pack_index.read_index` raises.
    """
    name = os.fspath(index)
    data = read_regular(index, MAX_INDEX_BYTES)
    found = "sha256:" + hashlib.sha256(data).hexdigest()
    if index_sha256 is not None and found != index_sha256:
        raise ColdSnapError(
            "pack.index-differs",
            f"{name} is not the index that was published",
            details=(f"expected {index_sha256}", f"found {found}"),
        )
    parsed = read_index(data, what=name)
    if body_sha256 is not None and parsed.body.sha256 != body_sha256:
        message = f"{name} describes {parsed.body.sha256}, not {body_sha256}"
        raise ColdSnapError("pack.body-differs", message)
    return PackReader(open_regular(body), parsed, os.fspath(body))


class PackReader:
    """An open pack; close it or use it in a with statement. Reads from several threads are fine."""

    def __init__(self, file: BinaryIO, index: PackIndex, name: str) -> None:
        self._file = file
        self.index = index
        self.name = name
        try:
            self._check_size()
        except ColdSnapError:
            file.close()
            raise

    def __enter__(self) -> PackReader:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    @property
    def extents(self) -> tuple[Extent, ...]:
        return self.index.extents

    def read(self, extent_id: str) -> bytes:
        """The bytes of an extent, every chunk checked.

        Raises:
            ColdSnapError: ``pack.no-such-extent``, ``pack.chunk-differs``, ``pack.short``.
        """
        buffer = bytearray(self.index.find(extent_id).length)
        self.read_into(extent_id, buffer)
        return bytes(buffer)

    def read_into(self, extent_id: str, buffer: Any) -> int:
        """Fill the start of a writable buffer of at least the extent's length; returns that length.

        On an error the buffer holds unchecked bytes and must not be used.

        Raises:
            ColdSnapError: as `read`; ``pack.buffer-short``.
        """
        extent = self.index.find(extent_id)
        view = memoryview(buffer).cast("B")
        if len(view) < extent.length:
            message = f"extent {extent_id!r} has {extent.length} bytes, the buffer {len(view)}"
            raise ColdSnapError("pack.buffer-short", message)
        size = self.index.chunk.bytes
        whole = hashlib.sha256()
        for number, expected in enumerate(extent.chunks):
            start = number * size
            part = view[start : min(start + size, extent.length)]
            self._pread(part, extent.offset + start)
            self._check_chunk(extent, number, part, expected)
            if not self._has_plain_chunks:
                whole.update(part)
        if not self._has_plain_chunks:
            self._check_whole(extent, whole.hexdigest())
        return extent.length

    def chunks(self, extent_id: str) -> Iterator[tuple[int, memoryview]]:
        """(offset in the extent, checked bytes) in order; the bytes are valid until the next."""
        extent = self.index.find(extent_id)
        if not self._has_plain_chunks:
            # Checked as a whole before the first byte is given out.
            whole = hashlib.sha256()
            for _, part in self._chunks(extent):
                whole.update(part)
            self._check_whole(extent, whole.hexdigest())
        yield from self._chunks(extent)

    def verify(
        self,
        extent_ids: Iterable[str] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Check the named extents, or without names the whole body with padding and identity.

        Returns the bytes checked; `progress` gets them as they grow.

        Raises:
            ColdSnapError: ``pack.chunk-differs``, ``pack.extent-differs``, ``pack.padding``,
                ``pack.body-differs``, ``pack.short``, ``pack.grown``.
        """
        named = None if extent_ids is None else [self.index.find(name) for name in extent_ids]
        done = 0
        body = hashlib.sha256()
        for extent in self.index.extents if named is None else named:
            whole = hashlib.sha256()
            for _, chunk in self._chunks(extent):
                whole.update(chunk)
                if named is None:
                    body.update(chunk)
                done += len(chunk)
                if progress is not None:
                    progress(done)
            self._check_whole(extent, whole.hexdigest())
            padding = self._padding(extent)
            body.update(padding)
            done += len(padding)
        if named is None and f"sha256:{body.hexdigest()}" != self.index.body.sha256:
            message = f"{self.name} is not the pack {self.index.body.sha256}"
            raise ColdSnapError("pack.body-differs", message)
        self._check_size()
        return done

    def _chunks(self, extent: Extent) -> Iterator[tuple[int, memoryview]]:
        size = self.index.chunk.bytes
        block = memoryview(bytearray(min(size, extent.length)))
        for number, expected in enumerate(extent.chunks):
            start = number * size
            part = block[: min(size, extent.length - start)]
            self._pread(part, extent.offset + start)
            self._check_chunk(extent, number, part, expected)
            yield start, part

    def _padding(self, extent: Extent) -> bytes:
        padding = bytearray(extent.end - extent.offset - extent.length)
        self._pread(memoryview(padding), extent.offset + extent.length)
        if any(padding):
            raise self._differs("padding", extent, "the zeros behind it")
        return bytes(padding)

    def _pread(self, part: memoryview, offset: int) -> None:
        filled = 0
        while filled < len(part):
            count = os.preadv(self._file.fileno(), [part[filled:]], offset + filled)
            if not count:
                message = f"{self.name} ends at byte {offset + filled}, inside an extent"
                raise ColdSnapError("pack.short", message)
            filled += count

    @property
    def _has_plain_chunks(self) -> bool:
        """Whether Python can check chunks; otherwise the extent's SHA-256 stands for them."""
        return self.index.chunk.algorithm == "sha256"

    def _check_whole(self, extent: Extent, found: str) -> None:
        if f"sha256:{found}" != extent.sha256:
            raise self._differs("extent-differs", extent, "its digest")

    def _check_chunk(self, extent: Extent, number: int, part: memoryview, expected: str) -> None:
        if self._has_plain_chunks and hashlib.sha256(part).hexdigest() != expected:
            first = extent.offset + number * self.index.chunk.bytes
            place = f"chunk {number} (bytes {first} to {first + len(part)})"
            raise self._differs("chunk-differs", extent, place)

    def _differs(self, reason: str, extent: Extent, place: str) -> ColdSnapError:
        return ColdSnapError(
            f"pack.{reason}",
            f"{self.name} is damaged: extent {extent.id!r}, {place}",
            remedy=PAYLOAD_REMEDY,
        )

    def _check_size(self) -> None:
        found, expected = os.fstat(self._file.fileno()).st_size, self.index.body.bytes
        if found != expected:
            reason = "short" if found < expected else "grown"
            message = f"{self.name} has {found} bytes, its index says {expected}"
            raise ColdSnapError(f"pack.{reason}", message)
