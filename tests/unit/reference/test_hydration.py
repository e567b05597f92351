"""The payload by libcoldsnap_hydrate and in Python: the same packs, bytes and errors."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from native_build import build_native

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_reference_engine import payload
from coldsnap_reference_engine.checkpoint import open_checkpoint
from coldsnap_reference_engine.config import read_config
from coldsnap_reference_engine.weights import CHECKPOINT_LAYOUTS, Weights
from coldsnap_runtime.hydrate import load_library


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = build_native(tmp_path_factory.mktemp("native"), "coldsnap_hydrate")
    return folder / "hydrate" / "libcoldsnap_hydrate.so"


@pytest.fixture(params=["library", "python"])
def way(request: pytest.FixtureRequest, library: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = str(request.param)
    monkeypatch.setenv("COLDSNAP_HYDRATE_LIBRARY", str(library) if name == "library" else "")
    return name


@pytest.fixture
def make(model: Path, address: Callable[[], int]) -> Callable[[], Weights]:
    return lambda: Weights(read_config(model), address=address())


@pytest.fixture
def weights(make: Callable[[], Weights], model: Path) -> Weights:
    made = make()
    with open_checkpoint(model / "model.safetensors") as checkpoint:
        made.load(checkpoint, CHECKPOINT_LAYOUTS, 2)
    return made


def content(weights: Weights) -> bytes:
    return b"".join(weights.bytes_of(extent).tobytes() for extent in weights.extents)


def test_both_ways_write_the_same_files(
    weights: Weights, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    for name in (str(library), ""):
        monkeypatch.setenv("COLDSNAP_HYDRATE_LIBRARY", name)
        folder = tmp_path / f"by-{len(written)}"
        folder.mkdir()
        written.append(payload.export(weights, folder, "plan"))
    assert written[0] == written[1]


def test_what_was_written_comes_back(
    way: str, library: Path, weights: Weights, make: Callable[[], Weights], tmp_path: Path
) -> None:
    written = payload.export(weights, tmp_path, "plan")
    other = make()
    amount = payload.fill(
        other, tmp_path / payload.PACK, tmp_path / payload.INDEX, written, threads=2
    )
    assert amount == written.bytes
    assert content(other) == content(weights)
    assert str(library) not in Path("/proc/self/maps").read_text()


def test_damage_has_one_error(
    way: str, weights: Weights, make: Callable[[], Weights], tmp_path: Path
) -> None:
    written = payload.export(weights, tmp_path, "plan")
    pack, index = tmp_path / payload.PACK, tmp_path / payload.INDEX
    pack.chmod(0o600)
    with pack.open("r+b") as file:
        file.seek(12_345)
        byte = file.read(1)
        file.seek(12_345)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(ColdSnapError) as caught:
        payload.fill(make(), pack, index, written, threads=2)
    first = weights.extents[0]
    assert caught.value.code == "pack.chunk-differs"
    assert f"{pack} is damaged: extent {first.id!r}, chunk 0 (bytes 0 to " in caught.value.message
    os.truncate(pack, written.bytes - 4096)
    with pytest.raises(ColdSnapError, match=r"pack\.short"):
        payload.fill(make(), pack, index, written, threads=2)


def test_the_library_is_used_where_it_is(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSNAP_HYDRATE_LIBRARY", str(library))
    with payload._session() as session:
        assert session is not None
        assert str(library) in Path("/proc/self/maps").read_text()
    monkeypatch.setenv("COLDSNAP_HYDRATE_LIBRARY", "")
    assert load_library() is None
