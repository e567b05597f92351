"""The index of a payload pack: what stands where in the body, and the digests of its parts.

docs/formats.md describes the format. The layout leaves no freedom: extents ordered by id, each
at the next multiple of 4096, zeros between; so a body has one index and the other way round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from coldsnap.artifact import canonical
from coldsnap.artifact.decode import Record, decode, parse
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.rules import Between, Bytes, Count, Digest, Line, Text

ALIGNMENT = 4096
CHUNK_BYTES = 4 << 20
MAX_INDEX_BYTES = 96 << 20
MAX_EXTENTS = 200_000
KIND = "coldsnap-payload-pack-index"
PAYLOAD_REMEDY = (
    "restore from the model's files and write the payload anew: coldsnap plan apply PLAN "
    "--var provider=recovery --var materialize=required (inputs of the restore templates); "
    "or capture it again"
)
"""For packs that are missing or damaged."""

Hex = Annotated[str, Text(r"[0-9a-f]{64}", 64, 64, "64 lower-case hex digits")]
ExtentId = Annotated[str, Text(r"\S(?:.*\S)?", 1, 512, "an extent id: text without outer blanks")]
Attributes = Annotated[
    Mapping[Annotated[str, Text(longest=64)], Line], Count(0, 32, of_object=True)
]


@dataclass(frozen=True)
class Extent(Record):
    """One named run of bytes in the body."""

    id: ExtentId
    """Semantic id, such as the name of a tensor; equal ids mean equal meaning on every host."""
    offset: Bytes
    """Bytes from the start of the body; a multiple of 4096."""
    length: Bytes
    """Bytes without the padding."""
    sha256: Digest
    """Of the extent's bytes."""
    chunks: Annotated[tuple[Hex, ...], Count(0, 1 << 24)]
    """Digest of each chunk, in order; the last one may be short. Empty for no bytes."""
    tree: Digest
    """Root of the Merkle tree (RFC 6962, SHA-256) whose leaves are the chunk digests."""
    attributes: Attributes = field(default_factory=dict)
    """What the writer wants to remember, such as dtype and shape."""

    @property
    def end(self) -> int:
        """Offset after the padding."""
        return self.offset + padded(self.length)


@dataclass(frozen=True)
class Body(Record):
    bytes: Bytes
    sha256: Digest


@dataclass(frozen=True)
class Chunking(Record):
    bytes: Annotated[int, Between(ALIGNMENT, 1 << 30)] = CHUNK_BYTES
    """Bytes per chunk, counted from the start of each extent; a multiple of 4096."""
    algorithm: Literal["sha256", "blake3"] = "sha256"
    """Of the chunk digests; 32 bytes of output for both."""

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.bytes % ALIGNMENT:
            yield "/bytes", f"must be a multiple of {ALIGNMENT}"


@dataclass(frozen=True)
class PackIndex(Record):
    """``<hex>.index.json``, beside the body ``<hex>.pack``."""

    body: Body
    chunk: Chunking
    extents: Annotated[tuple[Extent, ...], Count(0, MAX_EXTENTS)]
    alignment: Literal[4096] = 4096
    attributes: Attributes = field(default_factory=dict)
    format: Literal[1] = 1
    kind: Literal["coldsnap-payload-pack-index"] = "coldsnap-payload-pack-index"

    def find(self, extent_id: str) -> Extent:
        """The extent of that id.

        Raises:
            ColdSnapError: ``pack.no-such-extent``.
        """
        low, high = 0, len(self.extents)
        while low < high:
            middle = (low + high) // 2
            if self.extents[middle].id < extent_id:
                low = middle + 1
            else:
                high = middle
        if low < len(self.extents) and self.extents[low].id == extent_id:
            return self.extents[low]
        raise ColdSnapError("pack.no-such-extent", f"the pack has no extent {extent_id!r}")

    def to_bytes(self) -> bytes:
        """The content of the index file: canonical JSON."""
        return canonical.dumps(self.to_json()).encode("ascii")


def padded(length: int) -> int:
    """`length` rounded up to the alignment."""
    return -(-length // ALIGNMENT) * ALIGNMENT


def read_index(data: bytes, *, what: str = "pack index") -> PackIndex:
    """The checked index in `data`.

    Raises:
        ColdSnapError: ``pack.index-invalid`` for a malformed document, ``pack.unsorted``,
            ``pack.duplicate``, ``pack.overlap``, ``pack.gap``, ``pack.size``, ``pack.chunks``,
            ``pack.tree`` for extents that contradict each other, the body or their digests.
    """
    value = parse(data, limit=MAX_INDEX_BYTES, what=what, code="pack.index-invalid")
    index = decode(PackIndex, value, what=what, code="pack.index-invalid")
    check_index(index, what)
    return index


def check_index(index: PackIndex, what: str = "pack index") -> None:
    """The rules between extents, each with its own code.

    Raises:
        ColdSnapError: as `read_index`.
    """
    for before, extent in zip(index.extents, index.extents[1:], strict=False):
        _check_order(before.id, extent.id, what)
    at = 0
    for extent in index.extents:
        _check_place(extent, at, what)
        _check_digests(extent, index.chunk, what)
        at = extent.end
    if at != index.body.bytes:
        message = f"{what}: the extents end at {at}, the body at {index.body.bytes}"
        raise ColdSnapError("pack.size", message)


def _check_order(previous: str, current: str, what: str) -> None:
    if current <= previous:
        reason = "duplicate" if current == previous else "unsorted"
        message = f"{what}: extent {current!r} comes after {previous!r}"
        raise ColdSnapError(f"pack.{reason}", message)


def _check_place(extent: Extent, expected: int, what: str) -> None:
    if extent.offset != expected:
        reason = "overlap" if extent.offset < expected else "gap"
        message = f"{what}: extent {extent.id!r} is at {extent.offset}, must be at {expected}"
        raise ColdSnapError(f"pack.{reason}", message)


def _check_digests(extent: Extent, chunk: Chunking, what: str) -> None:
    expected = -(-extent.length // chunk.bytes)
    if len(extent.chunks) != expected:
        message = f"{what}: extent {extent.id!r} has {len(extent.chunks)} chunks, not {expected}"
        raise ColdSnapError("pack.chunks", message)
    if tree_digest(extent.chunks) != extent.tree:
        message = f"{what}: the tree digest of extent {extent.id!r} is not that of its chunks"
        raise ColdSnapError("pack.tree", message)
    is_plain = expected == 1 and chunk.algorithm == "sha256"
    if is_plain and extent.sha256 != f"sha256:{extent.chunks[0]}":
        message = f"{what}: extent {extent.id!r} and its only chunk have different digests"
        raise ColdSnapError("pack.chunks", message)


def tree_digest(chunks: Sequence[str]) -> str:
    """``sha256:<hex>``: the RFC 6962 Merkle root over chunk digests given as hex.

    Leaf: SHA-256(0x00 || digest); node: SHA-256(0x01 || left || right); the last node of an odd
    row moves up unchanged; no leaves: SHA-256 of nothing.
    """
    row = [hashlib.sha256(b"\0" + bytes.fromhex(chunk)).digest() for chunk in chunks]
    if not row:
        return "sha256:" + hashlib.sha256().hexdigest()
    while len(row) > 1:
        pairs = zip(row[::2], row[1::2], strict=False)
        above = [hashlib.sha256(b"\1" + left + right).digest() for left, right in pairs]
        row = above + row[-1:] if len(row) % 2 else above
    return "sha256:" + row[0].hex()
