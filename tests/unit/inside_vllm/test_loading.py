"""Bytes on their way while memory is mapped: the real library, into memory of this process."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path

import pytest

from coldsnap.artifact.pack import ExtentSource, write_pack_as
from coldsnap_inside_vllm import loading, phases
from coldsnap_inside_vllm.layout import Region, cover, layout_sha256
from coldsnap_inside_vllm.loading import Loading
from coldsnap_runtime.hydrate import Session, load_library
from coldsnap_runtime.hydrate.structures import Place

SIZES = (70_000, 9000)


@pytest.fixture
def memory():
    return [ctypes.create_string_buffer(size) for size in SIZES]


@pytest.fixture
def regions(memory):
    return [Region(ctypes.addressof(buffer), len(buffer)) for buffer in memory]


@pytest.fixture
def pack(tmp_path: Path, regions) -> list[str]:
    tensors = [("w", Region(regions[0].address + 100, 60_000)), ("b", regions[1])]
    sources = []
    for part in cover(sorted(regions, key=lambda region: region.address), tensors):
        attributes = {"allocation": str(part.allocation), "offset": str(part.offset)}
        data = bytes([65 + part.allocation]) * part.bytes
        sources.append(ExtentSource(part.id, part.bytes, data, attributes))
    names = tmp_path / "payload.pack", tmp_path / "payload.index.json"
    ordered = sorted(regions, key=lambda region: region.address)
    write_pack_as(*names, sources, attributes={"layout": layout_sha256(ordered)})
    return [str(name) for name in names]


@pytest.fixture(autouse=True)
def host_memory(monkeypatch):
    if load_library() is None:
        pytest.skip("libcoldsnap_hydrate is not built: tools/build-native")
    monkeypatch.setattr(loading, "Session", lambda lib, _place, **_more: Session(lib, Place.HOST))


def started(pack: list[str]) -> Loading:
    found = Loading(*pack, device=0)
    found.start()
    return found


def session_is_open(work: Loading) -> bool:
    return any(span["name"] == "index-read" for span in work._spans.found)


def test_every_byte_comes_once_the_memory_is_there(pack, regions, memory):
    work = started(pack)
    assert not any(memory[0].raw), "nothing moves before the memory is mapped"
    until = phases.now() + 30
    while not session_is_open(work) and phases.now() < until:
        time.sleep(0.005)
    mapped = phases.now()
    ordered = sorted(regions, key=lambda region: region.address)
    work.memory_is_mapped(ordered)
    result = work.result()
    assert result["bytes"] == sum(SIZES)
    for number, region in enumerate(ordered):
        assert ctypes.string_at(region.address, region.bytes) == bytes([65 + number]) * region.bytes
    spans = {span["name"]: span for span in result["spans"]}
    assert list(spans) == [
        "library-open", "session-open", "index-read", "memory-awaited", "payload", "session-close",
    ]  # fmt: skip
    for name in ("library-open", "session-open", "index-read"):  # beside the mapping, not behind it
        assert spans[name]["start"] + spans[name]["seconds"] <= mapped
    assert spans["payload"]["start"] >= mapped
    assert spans["session-open"]["attributes"]["open_seconds"] > 0
    payload = spans["payload"]["attributes"]
    assert payload["bytes"] == sum(SIZES)
    assert payload["residual_bytes"] == 10_000
    assert payload["threads"] > 0
    assert payload["engine"] == "host"
    assert 0 < payload["first_seconds"] <= payload["last_seconds"]
    assert len(payload["eighths"].split()) == 8


def test_a_damaged_chunk_is_named(pack, regions):
    data = bytearray(Path(pack[0]).read_bytes())
    data[50] ^= 1
    Path(pack[0]).write_bytes(data)
    work = started(pack)
    work.memory_is_mapped(sorted(regions, key=lambda region: region.address))
    result = work.result()
    assert result["code"] == "pack.chunk-differs"
    assert "error" in result


def test_another_layout_is_no_payload_for_this_engine(pack, regions):
    work = started(pack)
    work.memory_is_mapped(regions[:1])
    assert "another memory layout" in work.result()["error"]


def test_a_pack_that_is_gone(pack):
    Path(pack[0]).unlink()
    work = started(pack)
    work.memory_is_mapped([])
    assert work.result()["code"] == "file.missing"


def test_one_that_is_given_up_writes_nothing(pack, memory):
    work = started(pack)
    work.give_up()
    assert not work.is_alive()
    assert work.result()["code"] == "payload.not-loaded"
    assert not any(memory[0].raw)


def test_no_library_is_a_reason_not_a_crash(pack, monkeypatch):
    def missing() -> None:
        raise loading.NoLibraryError("libcoldsnap_hydrate cannot be used here")

    monkeypatch.setattr(loading, "opened_library", missing)
    work = started(pack)
    work.memory_is_mapped([])
    assert "cannot be used" in work.result()["error"]
