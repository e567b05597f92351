"""A safetensors file of the shapes of a language model, which every loader can read.

Header and tensors are multiples of 4 KiB, so that its extents are what a payload pack has, and one
file serves coldsnap and the others. Each chunk is different from all others: what lands at a wrong
place shows.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import random
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from coldsnap_runtime.hydrate.bench_file import CHUNK, CachedFile, check_room
from coldsnap_runtime.hydrate.library import Library
from coldsnap_runtime.hydrate.session import Transfer
from coldsnap_runtime.hydrate.structures import Algorithm

_PAGE = 4096
_ALIGNED = 64 << 10
"""The header's length: some loaders read whole blocks from where the tensors begin."""
_SEED = 8 << 20
_SAMPLE = 64 << 10
_SAMPLES = 48

Sample = tuple[str, int, int]
"""Tensor, offset in it, bytes."""


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    offset: int
    """In the file."""
    size: int


@dataclass(frozen=True)
class TensorFile(CachedFile):
    size: int
    tensors: tuple[Tensor, ...]
    digests: dict[Algorithm, bytes]
    """Of each chunk of each tensor."""

    @property
    def data_bytes(self) -> int:
        return sum(tensor.size for tensor in self.tensors)

    def transfer(self, address: int, algorithm: Algorithm) -> Transfer:
        """All tensors, one behind the other from `address` on."""
        start = self.tensors[0].offset
        extents = [(one.offset, one.size, address + one.offset - start) for one in self.tensors]
        digests = self.digests.get(algorithm)
        return Transfer(str(self.path), self.size, extents, CHUNK, algorithm, digests)

    def samples(self, seed: int) -> list[Sample]:
        """Places to look at: other ones for each seed, and always the ends of the file."""
        chosen = random.Random(seed)  # noqa: S311 - no secret
        found = [self._sample(tensor, 0) for tensor in (self.tensors[0], self.tensors[-1])]
        for _ in range(_SAMPLES):
            tensor = chosen.choice(self.tensors)
            found.append(self._sample(tensor, chosen.randrange(tensor.size)))
        last = self.tensors[-1]
        return [*found, self._sample(last, last.size - 1)]

    def expected(self, samples: list[Sample]) -> list[str]:
        """Digests of samples, read from the file."""
        offsets = {tensor.name: tensor.offset for tensor in self.tensors}
        with self.path.open("rb", buffering=0) as file:
            return [
                hashlib.sha256(os.pread(file.fileno(), length, offsets[name] + at)).hexdigest()
                for name, at, length in samples
            ]

    def place(self, sample: Sample) -> int:
        """Where a sample begins, counted from the first tensor."""
        offsets = {tensor.name: tensor.offset for tensor in self.tensors}
        return offsets[sample[0]] + sample[1] - self.tensors[0].offset

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        _note_of(self.path).unlink(missing_ok=True)

    def _sample(self, tensor: Tensor, at: int) -> Sample:
        at = max(0, min(at, tensor.size - _SAMPLE))
        return tensor.name, at, min(_SAMPLE, tensor.size - at)


def make_tensors(library: Library, folder: Path, size: int) -> TensorFile:
    """Write about `size` bytes of tensors; a file that is there and fits is taken.

    Raises:
        ColdSnapError: ``bench.no-room``.
    """
    path = folder / "coldsnap-bench.safetensors"
    there = path.stat().st_size if path.is_file() else 0
    check_room(folder, size - there)  # before the layout of what is far too large
    tensors, header = _layout(size)
    total = tensors[-1].offset + tensors[-1].size
    found = _kept(path, total, header)
    if found is None:
        check_room(folder, total - there)
        found = _write(library, path, tensors, header)
    digests = {
        Algorithm.SHA256: found[: len(found) // 2],
        Algorithm.BLAKE3: found[len(found) // 2 :],
    }
    return TensorFile(path, total, tuple(tensors), digests)


def _shapes(size: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes (2-byte elements) of a decoder, narrower where `size` is small."""
    hidden = 4096 if size >= 4 << 30 else 2048 if size >= 1 << 30 else 512
    norm = max(hidden, 2048)
    inner, key = 3 * hidden, hidden // 4
    yield "model.embed_tokens.weight", (37 * hidden, hidden)
    layer = 0
    while True:
        parts = {
            "input_layernorm": (norm,),
            "self_attn.q_proj": (hidden, hidden),
            "self_attn.k_proj": (key, hidden),
            "self_attn.v_proj": (key, hidden),
            "self_attn.o_proj": (hidden, hidden),
            "post_attention_layernorm": (norm,),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        for name, shape in parts.items():
            yield f"model.layers.{layer}.{name}.weight", shape
        layer += 1


def _layout(size: int) -> tuple[list[Tensor], bytes]:
    """Tensors up to `size`, and the file's bytes before them."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    listed: list[tuple[str, tuple[int, ...], int, int]] = []
    end = 0
    for name, shape in _shapes(size):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1) * 2
        if end + count > size and listed:
            break
        entries[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + count]}
        listed.append((name, shape, end, count))
        end += count
    text = json.dumps(entries, separators=(",", ":")).encode()
    start = -(-(len(text) + 8) // _ALIGNED) * _ALIGNED
    header = struct.pack("<Q", start - 8) + text.ljust(start - 8)
    return [Tensor(name, shape, start + at, count) for name, shape, at, count in listed], header


def _kept(path: Path, total: int, header: bytes) -> bytes | None:
    """Digests of a file that was left by an earlier run."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size != total or file.read(len(header)) != header:
                return None
        return _note_of(path).read_bytes()
    except OSError:
        return None


def _write(library: Library, path: Path, tensors: list[Tensor], header: bytes) -> bytes:
    """The file and a note of its digests: SHA-256 of all chunks, then BLAKE3 of all."""
    seed = os.urandom(_SEED)
    jobs = [
        (one.offset + at, min(CHUNK, one.size - at))
        for one in tensors
        for at in range(0, one.size, CHUNK)
    ]
    note = _note_of(path)
    note.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, tensors[-1].offset + tensors[-1].size)
        os.pwrite(descriptor, header, 0)

        def make(job: tuple[int, int]) -> tuple[bytes, bytes]:
            at, length = job
            start = at // _PAGE % (_SEED - CHUNK)
            piece = mmap.mmap(-1, length)
            piece[:] = seed[start : start + length]
            for page in range(0, length, _PAGE):
                struct.pack_into("<Q", piece, page, at + page)
            os.pwrite(descriptor, piece, at)
            data = piece[:]
            return (library.digest(Algorithm.SHA256, data), library.digest(Algorithm.BLAKE3, data))

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            made = list(pool.map(make, jobs))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    digests = b"".join(sha256 for sha256, _ in made) + b"".join(blake3 for _, blake3 in made)
    note.write_bytes(digests)
    return digests


def _note_of(path: Path) -> Path:
    return path.with_suffix(".digests")
