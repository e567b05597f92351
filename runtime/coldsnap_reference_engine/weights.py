"""The weights in memory: which extents there are, where they lie, how they are filled.

Extents are ordered by id, each at the next page; a payload pack has the same rule, so extent
and region offsets are equal. Products that read the same input are fused into one matrix
(q, k, v; gate and up).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.pack import ExtentSource
from coldsnap_reference_engine.checkpoint import Checkpoint, Floats
from coldsnap_reference_engine.config import ModelConfig
from coldsnap_reference_engine.kernels import ROWS, Layout
from coldsnap_reference_engine.regions import PAGE, WEIGHTS_ADDRESS, Region

Kind: TypeAlias = Literal["qkv", "out", "gate_up", "down", "head"]
KINDS: tuple[Kind, ...] = ("qkv", "out", "gate_up", "down", "head")
Layouts: TypeAlias = Mapping[Kind, Layout]
CHECKPOINT_LAYOUTS: Layouts = dict.fromkeys(KINDS, ROWS)


@dataclass(frozen=True)
class Part:
    """A piece of a checkpoint's tensor."""

    tensor: str
    rows: slice = field(default_factory=lambda: slice(None))
    columns: slice = field(default_factory=lambda: slice(None))


@dataclass(frozen=True)
class Extent:
    id: str
    shape: tuple[int, ...]
    """[out, in] for a matrix that is multiplied, whatever its layout."""
    parts: tuple[Part, ...]
    """Stacked along the rows."""
    kind: Kind | None
    """None: read as it is (norms, embedding)."""
    offset: int = 0

    @property
    def length(self) -> int:
        return 4 * int(np.prod(self.shape, dtype=np.int64))


class Weights:
    """All weights of one rank. Matrices are views of one region; their layout may change."""

    def __init__(
        self, config: ModelConfig, rank: int = 0, size: int = 1, *, address: int = WEIGHTS_ADDRESS
    ) -> None:
        self.extents = _placed(_extents(config, rank, size))
        last = self.extents[-1]
        self.payload_bytes = _padded(last.offset + last.length)
        self.region = Region("weights", address, self.payload_bytes, huge=True)
        self.layouts: dict[Kind, Layout] = dict(CHECKPOINT_LAYOUTS)
        self._views: dict[str, Floats] = {}
        self._refresh()

    def __getitem__(self, extent_id: str) -> Floats:
        """The array in its present layout."""
        return self._views[extent_id]

    def of_kind(self, kind: Kind) -> list[Extent]:
        return [extent for extent in self.extents if extent.kind == kind]

    def load(self, checkpoint: Checkpoint, layouts: Layouts, threads: int) -> None:
        """Fill every extent from a checkpoint, in the given layouts.

        Raises:
            ColdSnapError: ``model.tensor-missing``, ``model.invalid`` for a wrong shape.
        """
        self.layouts = dict(layouts)
        self._refresh()
        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(self._load, extent, checkpoint) for extent in self.extents]:
                done.result()

    def repack(self, kind: Kind, layout: Layout) -> None:
        """Change the layout of every matrix of a kind, in place."""
        before = self.layouts[kind]
        if before == layout:
            return
        extents = self.of_kind(kind)
        rows = np.empty(extents[0].shape, np.float32)
        packed = [self._views[extent.id] for extent in extents]
        self.layouts[kind] = layout
        self._refresh()
        for extent, old in zip(extents, packed, strict=True):
            before.unpack(old, rows)
            layout.pack(rows, self._views[extent.id])

    def sources(self) -> Iterator[ExtentSource]:
        """The payload: every extent, ordered by id, with what its bytes mean."""
        for extent in self.extents:
            yield ExtentSource(
                extent.id,
                extent.length,
                self.bytes_of(extent).data,
                {
                    "dtype": "F32",
                    "shape": "x".join(str(axis) for axis in extent.shape),
                    "layout": self.layout_of(extent).name,
                },
            )

    def bytes_of(self, extent: Extent) -> npt.NDArray[np.uint8]:
        return self.region.array(extent.offset, (extent.length,), np.uint8)

    def addresses(self) -> list[int]:
        """Where each extent's bytes lie, in the order of `extents`."""
        return [self.region.address + extent.offset for extent in self.extents]

    def layout_of(self, extent: Extent) -> Layout:
        return self.layouts[extent.kind] if extent.kind else ROWS

    def _refresh(self) -> None:
        for extent in self.extents:
            rows, *rest = extent.shape
            shape = self.layout_of(extent).shape(rows, rest[0]) if rest else extent.shape
            self._views[extent.id] = self.region.array(extent.offset, shape, np.float32)

    def _load(self, extent: Extent, checkpoint: Checkpoint) -> None:
        target = self._views[extent.id]
        layout = self.layout_of(extent)
        rows = target if layout == ROWS else np.empty(extent.shape, np.float32)
        at = 0
        for part in extent.parts:
            shape = checkpoint.shape(part.tensor)
            cut = (part.rows, part.columns)[: len(shape)]
            count = len(range(*part.rows.indices(shape[0])))
            if at + count > extent.shape[0] or len(shape) != len(extent.shape):
                raise ColdSnapError("model.invalid", f"tensor {part.tensor!r} has shape {shape}")
            checkpoint.read_into(part.tensor, rows[at : at + count], cut)
            at += count
        if layout != ROWS:
            layout.pack(rows, target)


def _extents(config: ModelConfig, rank: int, size: int) -> Iterator[Extent]:
    hidden = config.hidden_size

    def share(total: int) -> slice:
        return slice(total * rank // size, total * (rank + 1) // size)

    heads, keys = share(config.query_size), share(config.kv_size)
    inner, vocab = share(config.intermediate_size), share(config.vocab_size)

    def matrix(name: str, columns: int, kind: Kind, *parts: Part, rows: int) -> Extent:
        return Extent(f"{name}.weight", (rows, columns), parts, kind)

    def vector(name: str) -> Extent:
        return Extent(f"{name}.weight", (hidden,), (Part(f"{name}.weight"),), None)

    embedding = "model.embed_tokens.weight"
    yield Extent(embedding, (config.vocab_size, hidden), (Part(embedding),), None)
    yield vector("model.norm")
    head = Part("lm_head.weight", vocab)
    yield matrix("lm_head", hidden, "head", head, rows=_length(vocab))
    for layer in range(config.num_hidden_layers):
        name = f"model.layers.{layer}"
        attention, mlp = f"{name}.self_attn", f"{name}.mlp"
        yield vector(f"{name}.input_layernorm")
        yield vector(f"{name}.post_attention_layernorm")
        yield matrix(
            f"{attention}.qkv_proj", hidden, "qkv",
            Part(f"{attention}.q_proj.weight", heads),
            Part(f"{attention}.k_proj.weight", keys),
            Part(f"{attention}.v_proj.weight", keys),
            rows=_length(heads) + 2 * _length(keys),
        )  # fmt: skip
        output = Part(f"{attention}.o_proj.weight", columns=heads)
        yield matrix(f"{attention}.o_proj", _length(heads), "out", output, rows=hidden)
        gate, up = (Part(f"{mlp}.{half}_proj.weight", inner) for half in ("gate", "up"))
        yield matrix(f"{mlp}.gate_up_proj", hidden, "gate_up", gate, up, rows=2 * _length(inner))
        down = Part(f"{mlp}.down_proj.weight", columns=inner)
        yield matrix(f"{mlp}.down_proj", _length(inner), "down", down, rows=hidden)


def _placed(extents: Iterable[Extent]) -> tuple[Extent, ...]:
    placed: list[Extent] = []
    at = 0
    for extent in sorted(extents, key=lambda extent: extent.id):
        placed.append(Extent(extent.id, extent.shape, extent.parts, extent.kind, at))
        at = _padded(at + extent.length)
    return tuple(placed)


def _padded(length: int) -> int:
    return -(-length // PAGE) * PAGE


def _length(part: slice) -> int:
    return int(part.stop - part.start)
