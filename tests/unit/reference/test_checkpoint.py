from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_reference_engine.checkpoint import open_checkpoint, to_bfloat16, write_checkpoint
from coldsnap_reference_engine.config import config_of_size, read_config
from coldsnap_reference_engine.generate import WEIGHTS, make_model


def write(path: Path, dtype: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    values = {
        "a.weight": random.standard_normal((7, 5), dtype=np.float32),
        "b": random.standard_normal(3, dtype=np.float32),
    }
    shapes = [(name, value.shape) for name, value in values.items()]
    write_checkpoint(path, shapes, dtype, lambda name, _shape: values[name])
    return values


@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_round_trip(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "x.safetensors"
    values = write(path, dtype)
    with open_checkpoint(path) as checkpoint:
        for name, value in values.items():
            found = np.empty(checkpoint.shape(name), np.float32)
            checkpoint.read_into(name, found)
            if dtype == "F32":
                np.testing.assert_array_equal(found, value)
            else:
                np.testing.assert_allclose(found, value, rtol=2**-8)


def test_a_part_of_a_tensor(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    values = write(path, "F32")
    with open_checkpoint(path) as checkpoint:
        found = np.empty((2, 3), np.float32)
        checkpoint.read_into("a.weight", found, (slice(4, 6), slice(1, 4)))
    np.testing.assert_array_equal(found, values["a.weight"][4:6, 1:4])


def test_file_is_a_safetensors_file(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    values = write(path, "F32")
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    begin, end = header["a.weight"]["data_offsets"]
    raw = np.frombuffer(data[8 + length :][begin:end], "<f4").reshape(header["a.weight"]["shape"])
    np.testing.assert_array_equal(raw, values["a.weight"])
    assert (8 + length) % 64 == 0


def test_bfloat16_rounds_to_nearest_even() -> None:
    one = np.float32(1)
    step = np.float32(2**-7)
    values = np.array([one + step / 2, one + 3 * step / 2, one + step * np.float32(0.6)])
    bits = to_bfloat16(values.astype(np.float32))
    assert [hex(b) for b in bits] == ["0x3f80", "0x3f82", "0x3f81"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:4],
        lambda data: data[:20],
        lambda data: struct.pack("<Q", 1 << 60) + data[8:],
        lambda data: data[:-9],
        lambda data: data.replace(b"F32", b"I64"),
        lambda data: data.replace(b"[7,5]", b"[7,6]"),
    ],
)
def test_damaged_file_is_refused(tmp_path: Path, damage: object) -> None:
    path = tmp_path / "x.safetensors"
    write(path, "F32")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ColdSnapError, match=r"model\.invalid"), open_checkpoint(path):
        pass


def test_missing_tensor_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write(path, "F32")
    with open_checkpoint(path) as checkpoint, pytest.raises(ColdSnapError, match=r"'nope'"):
        checkpoint.shape("nope")


def test_model_is_deterministic_in_the_seed(tmp_path: Path, model: Path) -> None:
    make_model(tmp_path / "same", 4_000_000, 0, "BF16")
    make_model(tmp_path / "other", 4_000_000, 1, "BF16")
    wanted = (model / WEIGHTS).read_bytes()
    assert (tmp_path / "same" / WEIGHTS).read_bytes() == wanted
    assert (tmp_path / "other" / WEIGHTS).read_bytes() != wanted


@pytest.mark.parametrize("size", [4_000_000, 24_000_000, 200_000_000, 1_000_000_000])
def test_shape_comes_near_the_wanted_size(size: int) -> None:
    config = config_of_size(size, 4096 if size >= 32 << 20 else 1024, 2)
    assert abs(config.parameters * 2 - size) < size / 10
    assert config.num_attention_heads % config.num_key_value_heads == 0


def test_config_states_the_weights_exactly(model: Path) -> None:
    size = (model / WEIGHTS).stat().st_size
    assert 0 <= size - read_config(model).parameters * 2 < 1 << 16


@pytest.mark.parametrize(
    ("field", "value"),
    [("hidden_size", 0), ("num_key_value_heads", 5), ("head_dim", 7), ("vocab_size", "many")],
)
def test_bad_config_is_refused(tmp_path: Path, model: Path, field: str, value: object) -> None:
    config = json.loads((model / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, field: value}))
    with pytest.raises(ColdSnapError, match=r"model\.invalid"):
        read_config(tmp_path)
