"""Making a model folder: random weights whose greedy answers vary, and a trained tokenizer.

The same size, seed and dtype give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from coldsnap_reference_engine.checkpoint import Floats, write_checkpoint
from coldsnap_reference_engine.config import ModelConfig, config_of_size
from coldsnap_reference_engine.tokenizer import train_tokenizer
from coldsnap_reference_engine.vocabulary import word_counts

WEIGHTS = "model.safetensors"
_LARGE = 32 << 20
_VOCABULARY = {False: 1024, True: 4096}
# A residual stream that later layers keep changing: with the usual 0.02 a random model repeats
# one token for ever, because the last token's embedding decides everything.
_GAIN = 1.5
_LOGIT_SPREAD = 3.0


def make_model(folder: Path, weight_bytes: int, seed: int, dtype: str) -> ModelConfig:
    """Write config.json, tokenizer.json and model.safetensors.

    Args:
        folder: created if absent.
        weight_bytes: wanted size of the safetensors file; the nearest shape is taken.
        seed: of the weights.
        dtype: BF16 or F32, as stored.

    Raises:
        ColdSnapError: ``model.size``; OSError as the system says.
    """
    tokenizer = train_tokenizer(word_counts(), _VOCABULARY[weight_bytes >= _LARGE])
    config = config_of_size(weight_bytes, tokenizer.size, 2 if dtype == "BF16" else 4)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(folder / "tokenizer.json")
    (folder / "config.json").write_text(json.dumps(config.to_json(), indent=2) + "\n", "utf-8")

    def fill(name: str, shape: tuple[int, ...]) -> Floats:
        return _random(name, shape, seed)

    write_checkpoint(folder / WEIGHTS, tensor_shapes(config), dtype, fill)
    return config


def tensor_shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of a checkpoint's tensors, as Llama checkpoints have them."""
    hidden, inner = config.hidden_size, config.intermediate_size
    yield "model.embed_tokens.weight", (config.vocab_size, hidden)
    for layer in range(config.num_hidden_layers):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.input_layernorm.weight", (hidden,)
        yield f"{prefix}.self_attn.q_proj.weight", (config.query_size, hidden)
        yield f"{prefix}.self_attn.k_proj.weight", (config.kv_size, hidden)
        yield f"{prefix}.self_attn.v_proj.weight", (config.kv_size, hidden)
        yield f"{prefix}.self_attn.o_proj.weight", (hidden, config.query_size)
        yield f"{prefix}.post_attention_layernorm.weight", (hidden,)
        yield f"{prefix}.mlp.gate_proj.weight", (inner, hidden)
        yield f"{prefix}.mlp.up_proj.weight", (inner, hidden)
        yield f"{prefix}.mlp.down_proj.weight", (hidden, inner)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (config.vocab_size, hidden)


def _random(name: str, shape: tuple[int, ...], seed: int) -> Floats:
    """Each tensor has a stream of its own, so that its values depend on its name and the seed."""
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    key = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    generator = np.random.Generator(np.random.PCG64(int.from_bytes(key[:16], "big")))
    values = generator.standard_normal(shape, dtype=np.float32)
    scale = 1.0 if "embed" in name else _GAIN / np.sqrt(shape[1])
    if name == "lm_head.weight":
        scale = _LOGIT_SPREAD / np.sqrt(shape[1])
    values *= np.float32(scale)
    return values
