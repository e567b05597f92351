"""Shape of a model: ``config.json`` with the names that Llama checkpoints use."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coldsnap.artifact.errors import ColdSnapError

_MAX_CONFIG_BYTES = 1 << 20
_HEAD_DIM = 64
_SMALL = 256
_NEAR = 0.1
"""Share of the wanted size by which a shape may miss it."""
_LIMITS = {
    "vocab_size": 1 << 20,
    "hidden_size": 1 << 15,
    "intermediate_size": 1 << 17,
    "num_hidden_layers": 512,
    "num_attention_heads": 512,
    "num_key_value_heads": 512,
    "head_dim": 1024,
    "max_position_embeddings": 1 << 20,
}


@dataclass(frozen=True)
class ModelConfig:
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    eos_token_id: int = 0

    @property
    def query_size(self) -> int:
        return self.num_attention_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of the keys, and of the values, of one token."""
        return self.num_key_value_heads * self.head_dim

    @property
    def parameters(self) -> int:
        """Number of weights."""
        attention = self.hidden_size * (2 * self.query_size + 2 * self.kv_size)
        layer = attention + 3 * self.hidden_size * self.intermediate_size + 2 * self.hidden_size
        outer = 2 * self.vocab_size * self.hidden_size + self.hidden_size
        return self.num_hidden_layers * layer + outer

    def to_json(self) -> dict[str, Any]:
        return {
            "architectures": ["ColdSnapReferenceForCausalLM"],
            "model_type": "coldsnap-reference",
            **asdict(self),
        }


def read_config(folder: Path) -> ModelConfig:
    """The model's ``config.json``.

    Raises:
        ColdSnapError: ``model.missing``, ``model.invalid``.
    """
    path = folder / "config.json"
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_CONFIG_BYTES)
    except OSError as error:
        raise ColdSnapError(
            "model.missing",
            f"{path} cannot be read: {error.strerror}",
            remedy="make a model: python -m coldsnap_reference_engine make-model DIR",
        ) from error
    try:
        return _checked(json.loads(data))
    except (ValueError, TypeError, KeyError) as error:
        raise ColdSnapError("model.invalid", f"{path}: {error}") from error


def _checked(value: Any) -> ModelConfig:
    if not isinstance(value, dict):
        raise TypeError("not an object")
    fields: dict[str, Any] = {}
    for name, limit in _LIMITS.items():
        number = value[name]
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= limit:
            raise ValueError(f"{name} must be a whole number from 1 to {limit}")
        fields[name] = number
    for name in ("rms_norm_eps", "rope_theta"):
        fields[name] = float(value.get(name, getattr(ModelConfig, name)))
    fields["eos_token_id"] = int(value.get("eos_token_id", 0))
    config = ModelConfig(**fields)
    if config.num_attention_heads % config.num_key_value_heads:
        raise ValueError("num_attention_heads must be a multiple of num_key_value_heads")
    if config.head_dim % 2:
        raise ValueError("head_dim must be even")
    return config


def config_of_size(weight_bytes: int, vocab_size: int, bytes_per_weight: int) -> ModelConfig:
    """The shape whose checkpoint comes nearest to `weight_bytes`, near the usual proportions.

    Raises:
        ColdSnapError: ``model.size`` below what the smallest shape takes.
    """
    wanted = weight_bytes / bytes_per_weight
    found = [_shape(hidden, wanted, vocab_size) for hidden in (128, *range(256, 4097, 256))]
    best = min(found, key=lambda c: (abs(c.parameters - wanted) / wanted > _NEAR, _aspect(c)))
    if abs(best.parameters - wanted) > wanted:
        least = min(c.parameters for c in found) * bytes_per_weight
        raise ColdSnapError("model.size", f"the smallest model has {least} bytes of weights")
    return best


def _shape(hidden: int, wanted: float, vocab_size: int) -> ModelConfig:
    head_dim = _HEAD_DIM if hidden >= _SMALL else _HEAD_DIM // 2
    heads = hidden // head_dim

    def with_layers(layers: int) -> ModelConfig:
        return ModelConfig(
            vocab_size=vocab_size,
            hidden_size=hidden,
            intermediate_size=max(256, hidden * 8 // 3 // 256 * 256),
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=_kv_heads(heads),
            head_dim=head_dim,
        )

    one, two = with_layers(1).parameters, with_layers(2).parameters
    return with_layers(max(1, round((wanted - one) / (two - one)) + 1))


def _kv_heads(heads: int) -> int:
    """About a third of the heads; a power of two, so that ranks can share them."""
    found = 2
    while found * 2 * 3 <= heads and heads % (found * 2) == 0:
        found *= 2
    return found


def _aspect(config: ModelConfig) -> float:
    """Distance from 64 units of width per layer (GPT-2 small has 64, Llama 8B 128)."""
    return abs(config.hidden_size / config.num_hidden_layers - _HEAD_DIM)
