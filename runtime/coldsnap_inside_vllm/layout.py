"""Which bytes of the stable allocations are the model's and which are the rest.

Every allocation is covered exactly and disjointly by extents: one for each tensor of the model,
and residual ones for what lies between (padding, scratch that kernels keep). The layout is the
same after a restore because the addresses are: an extent names its allocation by number.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Region:
    """A run of device memory."""

    address: int
    bytes: int

    @property
    def end(self) -> int:
        return self.address + self.bytes


@dataclass(frozen=True)
class Part:
    """An extent of the payload pack and where it lives."""

    id: str
    """``model/NAME``, or ``residual/ALLOCATION/OFFSET``."""
    allocation: int
    offset: int
    """Bytes from the allocation's start."""
    bytes: int


def cover(allocations: Sequence[Region], tensors: Iterable[tuple[str, Region]]) -> list[Part]:
    """The parts that cover `allocations`, sorted by id.

    Args:
        allocations: sorted by address, disjoint.
        tensors: (name, where) of the model's tensors; those outside are left out, a tensor that
            shares bytes with an earlier one (tied weights) covers only what is still free.

    Raises:
        ValueError: the allocations overlap or are not sorted.
    """
    for one, other in itertools.pairwise(allocations):
        if one.end > other.address:
            raise ValueError(f"allocations overlap at {other.address:#x}")
    # By start, the longest first, then by name: tied weights always get the same owner.
    ordered = sorted(tensors, key=lambda item: (item[1].address, -item[1].bytes, item[0]))
    parts: list[Part] = []
    for number, allocation in enumerate(allocations):
        inside = [t for t in ordered if allocation.address <= t[1].address < allocation.end]
        parts += _cover_one(number, allocation, inside)
    return sorted(parts, key=lambda part: part.id)


def layout_sha256(allocations: Sequence[Region]) -> str:
    """Identity of a layout: sizes in order, without addresses."""
    text = ",".join(str(region.bytes) for region in allocations)
    return hashlib.sha256(text.encode()).hexdigest()


def _cover_one(
    number: int, allocation: Region, tensors: Sequence[tuple[str, Region]]
) -> list[Part]:
    parts: list[Part] = []
    at = allocation.address

    def add(name: str, end: int) -> None:
        nonlocal at
        if end > at:
            parts.append(Part(name, number, at - allocation.address, end - at))
            at = end

    for name, region in tensors:
        add(f"residual/{number:05}/{at - allocation.address:015}", region.address)
        add(f"model/{name}", min(region.end, allocation.end))
    add(f"residual/{number:05}/{at - allocation.address:015}", allocation.end)
    return parts
