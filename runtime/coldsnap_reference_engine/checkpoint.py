"""Safetensors files: written whole, read tensor by tensor through a mapping.

The format: 8 bytes length, a JSON header ``{name: {dtype, shape, data_offsets}}``, the data.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import fsync_dir

Floats: TypeAlias = npt.NDArray[np.float32]

_MAX_HEADER = 64 << 20
_ALIGNMENT = 64
_ITEM_BYTES = {"BF16": 2, "F32": 4}


@dataclass(frozen=True)
class TensorInfo:
    name: str
    dtype: str
    """BF16 or F32."""
    shape: tuple[int, ...]
    begin: int
    """Bytes from the start of the data."""
    end: int


def write_checkpoint(
    path: Path, tensors: Iterable[tuple[str, tuple[int, ...]]], dtype: str, fill: Any
) -> int:
    """Write tensors in order; ``fill(name, shape)`` gives each as float32 when its turn comes.

    Returns the file's size in bytes. The name appears when the file is whole and durable.
    """
    header: dict[str, Any] = {}
    listed = list(tensors)
    at = 0
    for name, shape in listed:
        size = int(np.prod(shape)) * _ITEM_BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in listed:
            values = fill(name, shape)
            file.write((to_bfloat16(values) if dtype == "BF16" else values).tobytes())
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    fsync_dir(path.parent)
    return 8 + len(text) + at


class Checkpoint:
    """An open safetensors file."""

    def __init__(self, data: mmap.mmap, start: int, tensors: dict[str, TensorInfo]) -> None:
        self._data = data
        self._start = start
        self.tensors = tensors

    def shape(self, name: str) -> tuple[int, ...]:
        """Raises ColdSnapError ``model.tensor-missing``."""
        return self._info(name).shape

    def read_into(self, name: str, target: Floats, part: tuple[slice, ...] = ()) -> None:
        """Convert a tensor, or a `part` of it, to float32 in `target` (of the part's shape)."""
        info = self._info(name)
        item = np.dtype("<u2" if info.dtype == "BF16" else "<f4")
        count = (info.end - info.begin) // item.itemsize
        raw = np.frombuffer(self._data, item, count, self._start + info.begin)
        source = raw.reshape(info.shape)[part]
        if info.dtype == "BF16":
            bits = target.view(np.uint32)
            np.left_shift(source, np.uint32(16), out=bits, dtype=np.uint32)
        else:
            np.copyto(target, source)

    def _info(self, name: str) -> TensorInfo:
        try:
            return self.tensors[name]
        except KeyError:
            raise ColdSnapError(
                "model.tensor-missing", f"the checkpoint has no tensor {name!r}"
            ) from None


@contextmanager
def open_checkpoint(path: Path) -> Iterator[Checkpoint]:
    """Map a safetensors file for reading; the mapping ends with the context.

    Raises:
        ColdSnapError: ``model.missing``, ``model.invalid``.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise ColdSnapError("model.missing", message) from error
    with file:
        try:
            start, tensors = _read_header(file.read(8), file, os.fstat(file.fileno()).st_size)
        except (ValueError, KeyError, TypeError, struct.error) as error:
            raise ColdSnapError("model.invalid", f"{path}: {error}") from error
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        yield Checkpoint(data, start, tensors)
    finally:
        # An exception's traceback may still hold an array over the mapping.
        try:
            data.close()
        except BufferError:
            del data


def _read_header(prefix: bytes, file: Any, size: int) -> tuple[int, dict[str, TensorInfo]]:
    (length,) = struct.unpack("<Q", prefix)
    if not len("{}") <= length <= min(_MAX_HEADER, size - len(prefix)):
        raise ValueError(f"its header cannot have {length} bytes")
    header = json.loads(file.read(length))
    start = len(prefix) + length
    tensors = {
        name: _tensor(name, value, size - start)
        for name, value in header.items()
        if name != "__metadata__"
    }
    return start, tensors


def _tensor(name: str, value: dict[str, Any], available: int) -> TensorInfo:
    begin, end = (int(offset) for offset in value["data_offsets"])
    shape = tuple(int(extent) for extent in value["shape"])
    dtype = str(value["dtype"])
    if dtype not in _ITEM_BYTES:
        raise ValueError(f"tensor {name!r} has dtype {dtype}; BF16 and F32 are supported")
    expected = int(np.prod(shape, dtype=np.int64)) * _ITEM_BYTES[dtype]
    if min(shape, default=1) < 0 or not 0 <= begin <= end <= available or end - begin != expected:
        raise ValueError(f"tensor {name!r} does not fit its data ({begin} to {end})")
    return TensorInfo(name, dtype, shape, begin, end)


def to_bfloat16(values: Floats) -> npt.NDArray[np.uint16]:
    """Round to nearest, ties to even; finite values only."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return (
        (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    ).astype(np.uint16)
