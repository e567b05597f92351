"""File <-> device memory and stable allocations, on a CUDA driver that is a fake.

The fake's device memory is host memory and its streams are threads that copy late: a buffer that is
reused too early gives wrong bytes. What a real driver says is for the machine that has one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from host_memory import CHUNK, LENGTHS, places

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.pack import PackReader, PackRef, open_pack
from coldsnap_runtime.hydrate import (
    Library,
    Region,
    Session,
    Source,
    graph_memory,
    hydrate_pack,
    write_pack,
)
from coldsnap_runtime.hydrate.structures import Io, Place

KINDS = (
    "streams", "events", "pins", "handles", "mappings", "reservations", "contexts", "modules",
    "allocations",
)  # fmt: skip
GRANULARITY = 2 << 20


@pytest.fixture
def left_over(fake_cuda: Path) -> Callable[[], dict[str, int]]:
    driver = ctypes.CDLL(str(fake_cuda))

    def count() -> dict[str, int]:
        counts = (ctypes.c_long * len(KINDS))()
        driver.fake_cuda_left(counts)
        return {kind: number for kind, number in zip(KINDS, counts, strict=True) if number}

    return count


@pytest.fixture(params=list(Io), ids=lambda io: io.name.lower())
def device(
    request: pytest.FixtureRequest,
    library: Library,
    fake_cuda: Path,
    left_over: Callable[[], dict[str, int]],
) -> Iterator[Session]:
    with Session(
        library, Place.CUDA, io=request.param, threads=3, slots=2, slot_bytes=8192,
        cuda_library=str(fake_cuda),
    ) as session:  # fmt: skip
        yield session
    assert left_over() == {}


@pytest.fixture
def region(library: Library, fake_cuda: Path) -> Iterator[Region]:
    with Region(library, 1 << 20, cuda_library=str(fake_cuda)) as made:
        made.zero()
        yield made


@pytest.mark.parametrize("delay", ["0", "300"])
def test_every_byte_arrives(
    monkeypatch: pytest.MonkeyPatch,
    device: Session,
    region: Region,
    pack: PackReader,
    contents: dict[str, bytes],
    delay: str,
) -> None:
    monkeypatch.setenv("FAKE_CUDA_DELAY_US", delay)
    addresses = places(region)
    report = hydrate_pack(device, pack, addresses)
    for name, data in contents.items():
        offset = addresses[name] - region.address
        assert region.get(offset, len(data)) == data
        assert region.get(offset + len(data), 3) == bytes(3)
    assert report.bytes == sum(LENGTHS.values())
    assert report.ring_bytes == 3 * 2 * 8192


def test_device_memory_becomes_the_same_pack(
    monkeypatch: pytest.MonkeyPatch,
    device: Session,
    region: Region,
    ref: PackRef,
    pack: PackReader,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("FAKE_CUDA_DELAY_US", "100")
    addresses = places(region)
    hydrate_pack(device, pack, addresses)
    sources = [Source(name, length, addresses[name]) for name, length in LENGTHS.items()]
    made = write_pack(device, tmp_path / "new", sources, chunk_bytes=CHUNK)
    assert made.sha256 == ref.sha256
    with open_pack(made.body, made.index) as written:
        written.verify()


def test_damage_is_found_and_the_session_serves_on(
    device: Session, region: Region, ref: PackRef, pack: PackReader
) -> None:
    ref.body.chmod(0o600)
    data = bytearray(ref.body.read_bytes())
    data[pack.index.find("f").offset] ^= 1
    ref.body.write_bytes(data)
    with pytest.raises(ColdSnapError, match=r"pack\.chunk-differs.*extent 'f', chunk 0"):
        hydrate_pack(device, pack, places(region))
    data[pack.index.find("f").offset] ^= 1
    ref.body.write_bytes(data)
    hydrate_pack(device, pack, places(region))


@pytest.mark.parametrize("call", ["cuMemcpyHtoDAsync", "cuStreamSynchronize"])
def test_what_the_driver_refuses_is_told(
    monkeypatch: pytest.MonkeyPatch, device: Session, region: Region, pack: PackReader, call: str
) -> None:
    monkeypatch.setenv("FAKE_CUDA_FAIL", call)
    with pytest.raises(ColdSnapError, match=rf"hydrate\.device.*{call}: fake failure"):
        hydrate_pack(device, pack, places(region))
    monkeypatch.delenv("FAKE_CUDA_FAIL")
    hydrate_pack(device, pack, places(region))


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("cuInit", "hydrate.no-device"),
        ("cuMemHostRegister", "hydrate.device"),
        ("cuStreamCreate", "hydrate.device"),
        ("cuEventCreate", "hydrate.device"),
    ],
)
def test_a_session_that_cannot_be_made_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
    library: Library,
    fake_cuda: Path,
    left_over: Callable[[], dict[str, int]],
    call: str,
    code: str,
) -> None:
    monkeypatch.setenv("FAKE_CUDA_FAIL", call)
    with pytest.raises(ColdSnapError) as caught:
        Session(library, Place.CUDA, cuda_library=str(fake_cuda))
    assert caught.value.code == code
    assert call in caught.value.message
    assert left_over() == {}


def test_without_a_driver_or_device(library: Library, fake_cuda: Path) -> None:
    with pytest.raises(ColdSnapError, match=r"hydrate\.no-device.*no CUDA driver"):
        Session(library, Place.CUDA, cuda_library="libnone-such.so.1")
    with pytest.raises(ColdSnapError, match=r"hydrate\.no-device.*cuDeviceGet"):
        Session(library, Place.CUDA, device=7, cuda_library=str(fake_cuda))
    with pytest.raises(ColdSnapError, match=r"hydrate\.no-device.*too old: it has no cuInit"):
        Session(library, Place.CUDA, cuda_library="libc.so.6")


def test_the_ceiling_moves_every_byte(device: Session, region: Region) -> None:
    metrics = device.copy_rate(region.address, 100_000)
    assert metrics.bytes == 100_000
    assert metrics.wall_ns > 0


def test_an_address_outlives_its_memory(
    library: Library, fake_cuda: Path, left_over: Callable[[], dict[str, int]]
) -> None:
    region = Region(library, 1, cuda_library=str(fake_cuda))
    address = region.address
    assert (region.size, region.epoch, region.is_mapped) == (GRANULARITY, 1, True)
    region.put(5, b"weights")
    assert region.get(5, 7) == b"weights"
    region.release()
    region.release()
    assert (region.address, region.epoch, region.is_mapped) == (address, 1, False)
    assert "mappings" not in left_over()
    with pytest.raises(ColdSnapError, match="has no memory now"):
        region.get(0, 1)
    region.map()
    region.map()
    assert (region.address, region.epoch, region.is_mapped) == (address, 2, True)
    assert region.get(5, 7) != b"weights"
    region.put(0, b"x" * 100)
    region.zero()
    assert region.get(0, 100) == bytes(100)
    with pytest.raises(ColdSnapError, match="outside the region"):
        region.put(GRANULARITY - 1, b"12")
    region.free()
    region.free()
    assert left_over() == {}


def test_a_region_at_an_address_that_is_wanted(library: Library, fake_cuda: Path) -> None:
    wanted = 0x1200_0000_0000
    with Region(library, 1, address=wanted, cuda_library=str(fake_cuda)) as first:
        assert first.address == wanted
        with pytest.raises(ColdSnapError, match=r"hydrate\.device.*0x120000000000 is taken"):
            Region(library, 1, address=wanted, cuda_library=str(fake_cuda))


@pytest.mark.parametrize("call", ["cuMemCreate", "cuMemMap", "cuMemSetAccess"])
def test_a_region_that_fails_half_way(
    monkeypatch: pytest.MonkeyPatch,
    library: Library,
    fake_cuda: Path,
    left_over: Callable[[], dict[str, int]],
    call: str,
) -> None:
    region = Region(library, 1, cuda_library=str(fake_cuda))
    region.release()
    monkeypatch.setenv("FAKE_CUDA_FAIL", call)
    with pytest.raises(ColdSnapError, match=call):
        region.map()
    assert (region.is_mapped, region.epoch) == (False, 1)
    with pytest.raises(ColdSnapError, match=call):
        Region(library, 1, cuda_library=str(fake_cuda))
    monkeypatch.delenv("FAKE_CUDA_FAIL")
    region.map()
    region.free()
    assert left_over() == {}


def test_graphs_are_accounted_for(library: Library, fake_cuda: Path) -> None:
    assert graph_memory(library, cuda_library=str(fake_cuda)) == (4096, 32 << 20)
