"""The mathematics: RMSNorm, rotary positions, grouped-query attention, SwiGLU, in float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from coldsnap_reference_engine.config import ModelConfig
from coldsnap_reference_engine.kernels import Floats, Multiplier
from coldsnap_reference_engine.kv_cache import KvCache
from coldsnap_reference_engine.plan import ExecutionPlan
from coldsnap_reference_engine.weights import Kind, Weights


class Collective(Protocol):
    """What tensor-parallel ranks do together; every rank calls in the same order."""

    @property
    def size(self) -> int: ...

    def all_reduce(self, values: Floats) -> Floats:
        """The sum over the ranks, the same bits on each."""

    def all_gather(self, values: Floats) -> Floats:
        """[width, n] of each rank, side by side: [width, n * size]."""


class Alone:
    """The collective of a single rank; of a larger `size`, one that hears nobody.

    With it a rank can time its own share before the others are there; its numbers mean nothing.
    """

    def __init__(self, size: int = 1) -> None:
        self.size = size

    def all_reduce(self, values: Floats) -> Floats:
        return values

    def all_gather(self, values: Floats) -> Floats:
        return values


@dataclass(frozen=True)
class Span:
    """Consecutive tokens of one sequence that are computed together."""

    slot: int
    start: int
    """Position of the first token."""
    tokens: tuple[int, ...]


class Transformer:
    """One rank's share of the model; not for several threads at once."""

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        cache: KvCache,
        multiplier: Multiplier,
        plan: ExecutionPlan,
        collective: Collective | None = None,
    ) -> None:
        self.config = config
        self.weights = weights
        self.cache = cache
        self.plan = plan
        self.multiplier = multiplier
        self.collective = collective or Alone()
        ranks = self.collective.size
        self._heads = config.num_attention_heads // ranks
        self._kv_heads = config.num_key_value_heads // ranks
        self._cos, self._sin = _rotations(config)

    def prefill(self, span: Span, *, last: bool) -> Floats | None:
        """Compute a piece of a prompt; its next-token logits [vocab] if it is the `last` piece."""
        width = self.plan.prefill_width(len(span.tokens))
        hidden = self._forward([span], width)
        if not last:
            return None
        row = np.zeros((self.plan.decode_width, hidden.shape[1]), np.float32)
        row[0] = hidden[len(span.tokens) - 1]
        logits: Floats = self._logits(row)[0]
        return logits

    def decode(self, spans: Sequence[Span]) -> Floats:
        """One token of each of up to `decode_width` sequences: logits [len(spans), vocab]."""
        return self._logits(self._forward(spans, self.plan.decode_width))[: len(spans)]

    def _forward(self, spans: Sequence[Span], width: int) -> Floats:
        """Hidden states [width, hidden]; rows beyond the spans' tokens are filling."""
        tokens = np.zeros(width, np.int64)
        positions = np.zeros(width, np.int64)
        flat = [token for span in spans for token in span.tokens]
        places = [span.start + n for span in spans for n in range(len(span.tokens))]
        tokens[: len(flat)], positions[: len(flat)] = flat, places
        cos, sin = self._cos[positions, None], self._sin[positions, None]
        hidden: Floats = self.weights["model.embed_tokens.weight"][tokens]
        for layer in range(self.config.num_hidden_layers):
            name = f"model.layers.{layer}"
            normed = self._norm(hidden, f"{name}.input_layernorm.weight")
            qkv = self._multiply(normed, f"{name}.self_attn.qkv_proj.weight", "qkv")
            mixed = self._attention(layer, qkv, spans, cos, sin)
            projected = self._multiply(mixed, f"{name}.self_attn.o_proj.weight", "out")
            hidden = hidden + self.collective.all_reduce(projected)
            normed = self._norm(hidden, f"{name}.post_attention_layernorm.weight")
            inner = self._multiply(normed, f"{name}.mlp.gate_up_proj.weight", "gate_up")
            gated = _swiglu(inner)
            down = self._multiply(gated, f"{name}.mlp.down_proj.weight", "down")
            hidden = hidden + self.collective.all_reduce(down)
        return hidden

    def _logits(self, hidden: Floats) -> Floats:
        normed = self._norm(hidden, "model.norm.weight")
        return self.collective.all_gather(self._multiply(normed, "lm_head.weight", "head"))

    def _multiply(self, x: Floats, name: str, kind: Kind) -> Floats:
        kernel = self.plan.kernel(kind, x.shape[0])
        return self.multiplier.multiply(x, self.weights[name], self.weights.layouts[kind], kernel)

    def _norm(self, x: Floats, name: str) -> Floats:
        scale = np.sqrt(np.mean(x * x, axis=1, keepdims=True) + self.config.rms_norm_eps)
        normed: Floats = x / scale * self.weights[name]
        return normed

    def _attention(
        self, layer: int, qkv: Floats, spans: Sequence[Span], cos: Floats, sin: Floats
    ) -> Floats:
        """[width, q + 2 kv] to [width, q]; writes keys and values of the spans' tokens."""
        width, size = qkv.shape[0], self.config.head_dim
        heads = qkv.reshape(width, self._heads + 2 * self._kv_heads, size)
        rotated = _rotate(heads[:, : self._heads + self._kv_heads], cos, sin)
        values = heads[:, self._heads + self._kv_heads :]
        mixed = np.zeros((width, self._heads * size), np.float32)
        self.multiplier.blas.use(1)
        row = 0
        for span in spans:
            count = len(span.tokens)
            here = slice(row, row + count)
            there = slice(span.start, span.start + count)
            keys_of, values_of = (
                self.cache.keys[span.slot, layer],
                self.cache.values[span.slot, layer],
            )
            keys_of[:, there] = rotated[here, self._heads :].swapaxes(0, 1)
            values_of[:, there] = values[here].swapaxes(0, 1)
            end = span.start + count
            mixed[here] = self._attend(
                rotated[here, : self._heads], keys_of[:, :end], values_of[:, :end]
            )
            row += count
        return mixed

    def _attend(self, queries: Floats, keys: Floats, values: Floats) -> Floats:
        """Queries [n, heads, dim] of the last n of T tokens over [kv heads, T, dim]: [n, q]."""
        count, heads, size = queries.shape
        groups, total = self._heads // self._kv_heads, keys.shape[1]
        grouped = queries.reshape(count, self._kv_heads, groups, size).transpose(1, 2, 0, 3)
        scores: Floats = grouped.reshape(self._kv_heads, groups * count, size) @ keys.swapaxes(1, 2)
        scores *= np.float32(size**-0.5)
        if count > 1:
            future = np.arange(total) > np.arange(total - count, total)[:, None]
            scores.reshape(self._kv_heads, groups, count, total)[:, :, future] = -np.inf
        scores -= scores.max(axis=2, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=2, keepdims=True)
        mixed: Floats = (scores @ values).reshape(self._kv_heads, groups, count, size)
        return mixed.transpose(2, 0, 1, 3).reshape(count, heads * size)


def _rotations(config: ModelConfig) -> tuple[Floats, Floats]:
    """Cosines and sines [positions, head_dim / 2]."""
    half = np.arange(0, config.head_dim, 2, dtype=np.float64) / config.head_dim
    angles = np.outer(np.arange(config.max_position_embeddings), config.rope_theta**-half)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _rotate(x: Floats, cos: Floats, sin: Floats) -> Floats:
    """Rotary positions of [width, heads, dim], in halves as Llama does."""
    half = x.shape[2] // 2
    first, second = x[..., :half], x[..., half:]
    out = np.empty_like(x)
    np.subtract(first * cos, second * sin, out=out[..., :half])
    np.add(second * cos, first * sin, out=out[..., half:])
    return out


def _swiglu(inner: Floats) -> Floats:
    """SiLU(gate) * up of [width, gate + up]; by tanh, which does not overflow."""
    half = inner.shape[1] // 2
    gate, up = inner[:, :half], inner[:, half:]
    gated: npt.NDArray[np.float32] = np.tanh(gate * np.float32(0.5))
    gated += np.float32(1)
    gated *= gate * np.float32(0.5)
    gated *= up
    return gated
