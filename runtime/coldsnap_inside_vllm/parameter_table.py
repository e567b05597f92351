"""The model's tensors as they are loaded, before kernels want them otherwise: names and places."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


class UnfitError(RuntimeError):
    """These tensors cannot go through a payload pack, or are not the pack's; says why."""


@dataclass(frozen=True)
class Row:
    """One tensor's memory."""

    id: str
    """``model/NAME``."""
    address: int
    bytes: int
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    """In elements."""

    @property
    def attributes(self) -> dict[str, str]:
        """What a pack remembers of it."""
        return {
            "dtype": self.dtype,
            "shape": "x".join(map(str, self.shape)),
            "stride": ",".join(map(str, self.stride)),
        }


def table_of(model: Any) -> tuple[list[Row], str, int]:
    """Rows sorted by id, the device's type and its index.

    Tensors that share memory (tied weights) are one row, by the first name.

    Raises:
        UnfitError: a tensor has no memory, is not dense, or lies on another device.
    """
    rows: dict[int, Row] = {}
    devices: set[tuple[str, int]] = set()
    named = sorted((*model.named_parameters(), *model.named_buffers()), key=lambda item: item[0])
    for name, tensor in named:
        if tensor.is_meta:
            raise UnfitError(f"{name} has no memory yet")
        if tensor.numel() == 0:
            continue
        devices.add((str(tensor.device.type), int(tensor.device.index or 0)))
        row = _row(name, tensor)
        kept = rows.setdefault(row.address, row)
        if (kept.bytes, kept.dtype) != (row.bytes, row.dtype):
            raise UnfitError(f"{name} shares memory with {kept.id} and is not the same")
    if len(devices) != 1:
        raise UnfitError(f"the model's tensors lie on {len(devices)} devices")
    ((kind, index),) = devices
    _require_disjoint(list(rows.values()))
    return sorted(rows.values(), key=lambda row: row.id), kind, index


def table_sha256(rows: Iterable[Row]) -> str:
    """Identity of a table without its addresses."""
    text = "\n".join(f"{row.id} {row.bytes} {sorted(row.attributes.items())}" for row in rows)
    return hashlib.sha256(text.encode()).hexdigest()


def _row(name: str, tensor: Any) -> Row:
    size = tensor.numel() * tensor.element_size()
    if not _is_dense(tensor.shape, tensor.stride()):
        raise UnfitError(f"{name} is not dense: shape {tuple(tensor.shape)}")
    return Row(
        f"model/{name}",
        tensor.data_ptr(),
        size,
        str(tensor.dtype),
        tuple(tensor.shape),
        tuple(tensor.stride()),
    )


def _is_dense(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether the elements fill one run of memory, in whatever order of dimensions."""
    expected = 1
    for step, size in sorted(zip(stride, shape, strict=True)):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True


def _require_disjoint(rows: list[Row]) -> None:
    end, owner = 0, ""
    for row in sorted(rows, key=lambda row: row.address):
        if row.address < end:
            raise UnfitError(f"{row.id} and {owner} overlap")
        end, owner = row.address + row.bytes, row.id
