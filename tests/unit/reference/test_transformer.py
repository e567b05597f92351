"""The engine's mathematics against a slow, plain re-implementation in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from coldsnap_reference_engine.autotune import tune
from coldsnap_reference_engine.blas import BlasThreads
from coldsnap_reference_engine.checkpoint import open_checkpoint
from coldsnap_reference_engine.config import ModelConfig, read_config
from coldsnap_reference_engine.generate import WEIGHTS
from coldsnap_reference_engine.kernels import Crew, Kernel, Layout, Multiplier
from coldsnap_reference_engine.kv_cache import KvCache
from coldsnap_reference_engine.plan import ExecutionPlan, untuned
from coldsnap_reference_engine.transformer import Span, Transformer
from coldsnap_reference_engine.weights import CHECKPOINT_LAYOUTS, KINDS, Weights

PROMPT = (5, 900, 17, 17, 300, 42, 7, 1000, 64, 5)
CONTEXT = 128


def build(model: Path, address: Callable[[], int]) -> Transformer:
    config = read_config(model)
    weights = Weights(config, address=address())
    with open_checkpoint(model / WEIGHTS) as checkpoint:
        weights.load(checkpoint, CHECKPOINT_LAYOUTS, 1)
    layers, heads = config.num_hidden_layers, config.num_key_value_heads
    cache = KvCache(4, layers, heads, CONTEXT, config.head_dim, address=address())
    return Transformer(config, weights, cache, Multiplier(Crew(2), BlasThreads()), untuned(1))


@pytest.fixture
def transformer(model: Path, address: Callable[[], int]) -> Transformer:
    return build(model, address)


def naive_logits(model: Path, tokens: tuple[int, ...]) -> np.ndarray:
    """Next-token logits of the last token: loops over positions and heads, float64."""
    config = read_config(model)
    with open_checkpoint(model / WEIGHTS) as checkpoint:

        def weight(name: str) -> np.ndarray:
            found = np.empty(checkpoint.shape(name), np.float32)
            checkpoint.read_into(name, found)
            return found.astype(np.float64)

        states = [weight("model.embed_tokens.weight")[token] for token in tokens]
        for layer in range(config.num_hidden_layers):
            states = naive_layer(config, weight, f"model.layers.{layer}", states)
        last = naive_norm(states[-1], weight("model.norm.weight"), config)
        return weight("lm_head.weight") @ last


def naive_norm(x: np.ndarray, gain: np.ndarray, config: ModelConfig) -> np.ndarray:
    return x / math.sqrt(float(np.mean(x**2)) + config.rms_norm_eps) * gain


def naive_layer(
    config: ModelConfig,
    weight: Callable[[str], np.ndarray],
    name: str,
    states: list[np.ndarray],
) -> list[np.ndarray]:
    size = config.head_dim
    projections = {p: weight(f"{name}.self_attn.{p}_proj.weight") for p in "qkvo"}
    gains = [weight(f"{name}.{n}_layernorm.weight") for n in ("input", "post_attention")]
    gate, up, down = (weight(f"{name}.mlp.{n}_proj.weight") for n in ("gate", "up", "down"))
    normed = [naive_norm(x, gains[0], config) for x in states]
    heads = {p: [(projections[p] @ x).reshape(-1, size) for x in normed] for p in "qkv"}
    out = []
    for position, x in enumerate(states):
        mixed = []
        for head in range(config.num_attention_heads):
            group = head * config.num_key_value_heads // config.num_attention_heads
            query = naive_rotate(heads["q"][position][head], position, config)
            scores = np.array(
                [
                    query @ naive_rotate(heads["k"][other][group], other, config) / math.sqrt(size)
                    for other in range(position + 1)
                ]
            )
            chances = np.exp(scores - scores.max())
            chances /= chances.sum()
            mixed.append(sum(c * heads["v"][o][group] for o, c in enumerate(chances)))
        attended = x + projections["o"] @ np.concatenate(mixed)
        y = naive_norm(attended, gains[1], config)
        g = gate @ y
        out.append(attended + down @ (g / (1 + np.exp(-g)) * (up @ y)))
    return out


def naive_rotate(x: np.ndarray, position: int, config: ModelConfig) -> np.ndarray:
    half = len(x) // 2
    out = np.empty_like(x)
    for i in range(half):
        angle = position * config.rope_theta ** (-2 * i / len(x))
        out[i] = x[i] * math.cos(angle) - x[i + half] * math.sin(angle)
        out[i + half] = x[i + half] * math.cos(angle) + x[i] * math.sin(angle)
    return out


def test_prefill_equals_the_plain_way(model: Path, transformer: Transformer) -> None:
    found = transformer.prefill(Span(0, 0, PROMPT), last=True)
    np.testing.assert_allclose(found, naive_logits(model, PROMPT), atol=2e-3)


def test_decode_equals_the_plain_way(model: Path, transformer: Transformer) -> None:
    transformer.prefill(Span(1, 0, PROMPT[:-2]), last=False)
    for position in (len(PROMPT) - 2, len(PROMPT) - 1):
        found = transformer.decode([Span(1, position, (PROMPT[position],))])[0]
    np.testing.assert_allclose(found, naive_logits(model, PROMPT), atol=2e-3)


def test_prompt_in_pieces_is_the_prompt(transformer: Transformer) -> None:
    whole = transformer.prefill(Span(0, 0, PROMPT), last=True)
    transformer.prefill(Span(1, 0, PROMPT[:4]), last=False)
    pieces = transformer.prefill(Span(1, 4, PROMPT[4:]), last=True)
    np.testing.assert_allclose(pieces, whole, atol=1e-3)


@pytest.mark.parametrize("kernel", [Kernel(1), Kernel(2), Kernel(2, crew=True)])
@pytest.mark.parametrize("block", [0, 32, 128])
def test_every_layout_and_kernel_gives_the_same_answer(
    transformer: Transformer, block: int, kernel: Kernel
) -> None:
    wanted = transformer.prefill(Span(0, 0, PROMPT), last=True)
    layouts = dict.fromkeys(KINDS, Layout(block))
    for kind in KINDS:
        transformer.weights.repack(kind, layouts[kind])
    transformer.plan = ExecutionPlan(4, (8, 32), layouts, fallback=kernel)
    found = transformer.prefill(Span(0, 0, PROMPT), last=True)
    np.testing.assert_allclose(found, wanted, atol=1e-3)


def test_repacking_back_restores_every_bit(transformer: Transformer) -> None:
    weights = transformer.weights
    before = {extent.id: weights.bytes_of(extent).copy() for extent in weights.extents}
    for block in (64, 32, 128, 0):
        for kind in KINDS:
            weights.repack(kind, Layout(block))
    for extent in weights.extents:
        np.testing.assert_array_equal(weights.bytes_of(extent), before[extent.id])


def test_loading_into_a_layout_equals_repacking(
    model: Path, transformer: Transformer, address: Callable[[], int]
) -> None:
    layouts = dict.fromkeys(KINDS, Layout(64))
    for kind in KINDS:
        transformer.weights.repack(kind, Layout(64))
    other = Weights(transformer.config, address=address())
    with open_checkpoint(model / WEIGHTS) as checkpoint:
        other.load(checkpoint, layouts, 2)
    for extent in other.extents:
        np.testing.assert_array_equal(other.bytes_of(extent), transformer.weights.bytes_of(extent))


def test_extents_cover_the_region_as_a_pack_does(transformer: Transformer) -> None:
    ids = [extent.id for extent in transformer.weights.extents]
    assert ids == sorted(ids)
    at = 0
    for extent in transformer.weights.extents:
        assert extent.offset == at
        at += -(-extent.length // 4096) * 4096
    assert at == transformer.weights.payload_bytes


def test_tuned_model_answers_as_before(transformer: Transformer) -> None:
    before = transformer.prefill(Span(0, 0, PROMPT), last=True)
    measured = tune(transformer, 2.0)
    after = transformer.prefill(Span(0, 0, PROMPT), last=True)
    np.testing.assert_allclose(after, before, atol=1e-3)
    assert measured.candidates > 50
    together = measured.speeds["tuned", "4"] / measured.speeds["untuned", "4"]
    assert measured.is_kept == (together > 1)


def test_an_answer_does_not_depend_on_its_neighbours(transformer: Transformer) -> None:
    """Bit for bit, for whatever plan tuning chose, in whatever row and slot a sequence is."""
    tune(transformer, 2.0)
    transformer.prefill(Span(0, 0, PROMPT), last=False)
    alone = transformer.decode([Span(0, len(PROMPT), (9,))])
    width = transformer.plan.decode_width
    for row in range(width):
        for slot in range(width):
            transformer.prefill(Span(slot, 0, PROMPT if slot == row else (1, 2, 3)), last=False)
        spans = [
            Span(slot, len(PROMPT) if slot == row else 3, (9 if slot == row else 50 + slot,))
            for slot in range(width)
        ]
        together = transformer.decode(spans)
        np.testing.assert_array_equal(together[row], alone[0])


def test_dropped_regions_read_as_zeros_at_the_same_address(transformer: Transformer) -> None:
    view = transformer.weights["lm_head.weight"]
    assert view.any()
    resident = transformer.weights.region.resident_bytes()
    assert resident >= transformer.weights.payload_bytes
    transformer.weights.region.drop()
    assert transformer.weights.region.resident_bytes() == 0
    assert not view.any()
