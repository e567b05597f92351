"""A model's parameters through a payload pack, by the real library, in host memory."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_inside_vllm import parameters
from coldsnap_inside_vllm.parameter_table import UnfitError, table_of, table_sha256
from coldsnap_inside_vllm.parameters import export_parameters, fill_parameters
from coldsnap_runtime.hydrate import load_library

needs_library = pytest.mark.skipif(
    load_library() is None, reason="libcoldsnap_hydrate is not built"
)


class Device:
    type, index = "cpu", None


class Tensor:
    """As much of a tensor as is looked at, over memory of its own."""

    is_meta = False
    device = Device()

    def __init__(self, *shape: int, data: bytes = b"", stride: tuple[int, ...] = ()) -> None:
        self.shape = shape
        self._stride = stride or _contiguous(shape)
        size = self.numel() * 4
        self.memory = ctypes.create_string_buffer(data or os.urandom(size), size)
        self.dtype = "torch.float32"

    def numel(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    def element_size(self) -> int:
        return 4

    def stride(self) -> tuple[int, ...]:
        return self._stride

    def data_ptr(self) -> int:
        return ctypes.addressof(self.memory)


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    steps = [1]
    for size in reversed(shape[1:]):
        steps.insert(0, steps[0] * size)
    return tuple(steps) if shape else ()


class Model:
    def __init__(self, **tensors: Tensor) -> None:
        self.tensors = tensors

    def named_parameters(self):
        return [(n, t) for n, t in self.tensors.items() if not n.startswith("buffer")]

    def named_buffers(self):
        return [(n, t) for n, t in self.tensors.items() if n.startswith("buffer")]


def model(**changes: Tensor) -> Model:
    tied = Tensor(64, 32)
    base = {"embed": tied, "head": tied, "norm": Tensor(32), "buffer": Tensor(7, 5)}
    return Model(**{**base, **changes})


def test_a_table_has_each_byte_once():
    rows, kind, index = table_of(model())
    assert (kind, index) == ("cpu", 0)
    assert [row.id for row in rows] == ["model/buffer", "model/embed", "model/norm"]
    assert sum(row.bytes for row in rows) == 4 * (64 * 32 + 32 + 35)


def test_addresses_are_no_part_of_its_identity():
    models = model(), model()  # both alive: else the second may lie where the first did
    one, other = (table_of(each)[0] for each in models)
    assert one != other
    assert table_sha256(one) == table_sha256(other)
    turned = table_of(model(norm=Tensor(8, 4)))[0]
    assert table_sha256(turned) != table_sha256(one)


def test_a_transposed_tensor_is_dense_and_a_slice_is_not():
    table_of(model(norm=Tensor(8, 4, stride=(1, 8))))
    with pytest.raises(UnfitError, match="norm is not dense"):
        table_of(model(norm=Tensor(8, 4, stride=(8, 1))))


def test_overlap_and_meta_are_refused():
    whole = Tensor(8)
    part = Tensor(4)
    part.data_ptr = lambda: whole.data_ptr() + 16
    with pytest.raises(UnfitError, match="overlap"):
        table_of(Model(whole=whole, part=part))
    nothing = Tensor(4)
    nothing.is_meta = True
    with pytest.raises(UnfitError, match="no memory"):
        table_of(Model(nothing=nothing))


@needs_library
def test_out_and_back(tmp_path: Path):
    source, target = model(), model()
    moved = export_parameters(source, str(tmp_path))
    assert moved.tensors == 3
    pack, index = str(tmp_path / "payload.pack"), str(tmp_path / "payload.index.json")
    filled = fill_parameters(target, pack, index)
    assert filled.tensors == 3
    for name, tensor in source.tensors.items():
        assert target.tensors[name].memory.raw == tensor.memory.raw, name


@needs_library
def test_another_model_is_not_filled(tmp_path: Path):
    export_parameters(model(), str(tmp_path))
    pack, index = str(tmp_path / "payload.pack"), str(tmp_path / "payload.index.json")
    other = model(norm=Tensor(33))
    before = other.tensors["embed"].memory.raw
    with pytest.raises(UnfitError, match="of another model: norm differs"):
        fill_parameters(other, pack, index)
    assert other.tensors["embed"].memory.raw == before


@needs_library
def test_a_damaged_chunk_is_found(tmp_path: Path):
    export_parameters(model(), str(tmp_path))
    pack = tmp_path / "payload.pack"
    data = bytearray(pack.read_bytes())
    data[5000] ^= 1
    pack.chmod(0o600)
    pack.write_bytes(data)
    with pytest.raises(ColdSnapError) as caught:
        fill_parameters(model(), str(pack), str(tmp_path / "payload.index.json"))
    assert caught.value.code == "pack.chunk-differs"


def test_what_torch_has_begun_is_awaited_on_a_device(monkeypatch: pytest.MonkeyPatch):
    waits: list[str] = []
    cuda = SimpleNamespace(synchronize=lambda: waits.append("device"))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    parameters._settle("cpu")
    assert waits == []
    parameters._settle("cuda")
    assert waits == ["device"]
