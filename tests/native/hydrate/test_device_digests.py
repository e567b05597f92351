"""Chunks that the device digests: on the fake driver always, on a real one where there is one.

The fake plays the kernel by the reference; the kernel's own source is compared with the reference
as a program of this processor, and its machine code by the tests on a real device.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.pack import PackReader, PackRef, open_pack
from coldsnap_runtime.hydrate import Library, Region, Session, Source, hydrate_pack, write_pack
from coldsnap_runtime.hydrate.structures import Digests, Io, Place

LENGTHS = {
    "a": 300_000, "b": 0, "c": 1, "d": 65_536, "e": 65_537, "f": 2_500_000, "g": 4096, "h": 131_072,
    "i": 1_048_576, "j": 777, "k": 3_000_001,
}  # fmt: skip
CHUNKS = (4096, 65_536, 131_072, 1 << 20, 4 << 20)


def real_driver() -> str | None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count = ctypes.c_int()
    found = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return "libcuda.so.1" if found and count.value else None


@pytest.fixture(params=["fake", "real"])
def driver(request: pytest.FixtureRequest) -> str:
    if request.param == "fake":
        return str(request.getfixturevalue("fake_cuda"))
    found = real_driver()
    if found is None:
        pytest.skip("needs a CUDA device")
    return found


@pytest.fixture
def contents() -> dict[str, bytes]:
    return {name: os.urandom(length) for name, length in LENGTHS.items()}


@pytest.fixture(params=CHUNKS)
def ref(
    request: pytest.FixtureRequest, library: Library, tmp_path: Path, contents: dict[str, bytes]
) -> PackRef:
    kept = {
        name: ctypes.create_string_buffer(data, len(data) + 1) for name, data in contents.items()
    }
    with Session(library, threads=2) as session:
        sources = [
            Source(name, LENGTHS[name], ctypes.addressof(memory)) for name, memory in kept.items()
        ]
        return write_pack(session, tmp_path, sources, chunk_bytes=request.param)


@pytest.fixture
def pack(ref: PackRef) -> Iterator[PackReader]:
    with open_pack(ref.body, ref.index) as opened:
        yield opened


@pytest.fixture
def region(library: Library, driver: str) -> Iterator[Region]:
    with Region(library, 8 << 20, cuda_library=driver) as made:
        made.zero()
        yield made


def places(region: Region, gap: int) -> dict[str, int]:
    addresses, at = {}, region.address + gap
    for name, length in LENGTHS.items():
        addresses[name] = at
        at += length + gap
    return addresses


def check(region: Region, addresses: dict[str, int], contents: dict[str, bytes], gap: int) -> None:
    for name, data in contents.items():
        offset = addresses[name] - region.address
        assert region.get(offset, len(data)) == data
        assert region.get(offset + len(data), gap) == bytes(gap)


@pytest.mark.parametrize("gap", [1, 16])
@pytest.mark.parametrize("io", list(Io), ids=lambda io: io.name.lower())
@pytest.mark.parametrize("block", [16_384, 1 << 20])
def test_chunks_of_all_sizes_at_odd_places(
    monkeypatch: pytest.MonkeyPatch,
    library: Library,
    driver: str,
    region: Region,
    pack: PackReader,
    contents: dict[str, bytes],
    gap: int,
    io: Io,
    block: int,
) -> None:
    monkeypatch.setenv("FAKE_CUDA_DELAY_US", "20")
    addresses = places(region, gap)
    with Session(
        library, Place.CUDA, io=io, threads=4, slots=4, slot_bytes=block // 4, block_bytes=block,
        digests=Digests.DEVICE, cuda_library=driver,
    ) as session:  # fmt: skip
        report = hydrate_pack(session, pack, addresses)
    check(region, addresses, contents, gap)
    assert report.bytes == sum(LENGTHS.values())
    # Small chunks that a thread has whole are digested by it.
    least = 0 if pack.index.chunk.bytes == 4096 else LENGTHS["f"]
    assert least <= report.device_digest_bytes <= report.bytes


@pytest.mark.parametrize("name", [name for name, length in LENGTHS.items() if length])
def test_one_flipped_bit_anywhere_is_found(
    library: Library, driver: str, region: Region, ref: PackRef, pack: PackReader, name: str
) -> None:
    extent = pack.index.find(name)
    ref.body.chmod(0o600)
    with ref.body.open("r+b") as file:
        file.seek(extent.offset + extent.length - 1)
        last = file.read(1)[0]
        file.seek(extent.offset + extent.length - 1)
        file.write(bytes([last ^ 4]))
    chunk = (extent.length - 1) // pack.index.chunk.bytes
    with Session(library, Place.CUDA, threads=3, cuda_library=driver) as session:
        pattern = rf"pack\.chunk-differs.*extent '{name}', chunk {chunk} "
        with pytest.raises(ColdSnapError, match=pattern):
            hydrate_pack(session, pack, places(region, 1))
        with ref.body.open("r+b") as file:
            file.seek(extent.offset + extent.length - 1)
            file.write(bytes([last]))
        hydrate_pack(session, pack, places(region, 1))


@pytest.mark.parametrize(
    "refused",
    [
        "cuModuleLoadData",
        "cuModuleGetFunction",
        "cuMemAlloc",
        "cuLaunchKernel",
        "wrong",
        "processor",
    ],
)
def test_the_processor_digests_where_the_device_cannot(
    monkeypatch: pytest.MonkeyPatch,
    library: Library,
    fake_cuda: Path,
    pack: PackReader,
    contents: dict[str, bytes],
    refused: str,
) -> None:
    if refused == "wrong":
        monkeypatch.setenv("FAKE_CUDA_WRONG_DIGESTS", "1")
    monkeypatch.setenv("FAKE_CUDA_FAIL", refused)
    asked = Digests.PROCESSOR if refused == "processor" else Digests.AUTO
    with (
        Region(library, 8 << 20, cuda_library=str(fake_cuda)) as region,
        Session(library, Place.CUDA, digests=asked, cuda_library=str(fake_cuda)) as session,
    ):
        region.zero()
        addresses = places(region, 1)
        report = hydrate_pack(session, pack, addresses)
        check(region, addresses, contents, 1)
    assert report.device_digest_bytes == 0


def test_a_device_that_must_digest_and_cannot(
    monkeypatch: pytest.MonkeyPatch, library: Library, fake_cuda: Path
) -> None:
    monkeypatch.setenv("FAKE_CUDA_FAIL", "cuModuleLoadData")
    with pytest.raises(ColdSnapError, match=r"hydrate\.device.*cuModuleLoadData"):
        Session(library, Place.CUDA, digests=Digests.DEVICE, cuda_library=str(fake_cuda))
    monkeypatch.delenv("FAKE_CUDA_FAIL")
    monkeypatch.setenv("FAKE_CUDA_WRONG_DIGESTS", "1")
    with pytest.raises(ColdSnapError, match=r"hydrate\.device.*digests wrongly"):
        Session(library, Place.CUDA, digests=Digests.DEVICE, cuda_library=str(fake_cuda))


@pytest.mark.parametrize("call", ["cuLaunchKernel", "cuStreamWaitEvent", "cuMemcpyHtoDAsync"])
def test_a_driver_that_refuses_half_way(
    monkeypatch: pytest.MonkeyPatch,
    library: Library,
    fake_cuda: Path,
    pack: PackReader,
    call: str,
) -> None:
    with (
        Region(library, 8 << 20, cuda_library=str(fake_cuda)) as region,
        Session(
            library, Place.CUDA, threads=6, slots=2, slot_bytes=65_536, cuda_library=str(fake_cuda)
        ) as session,
    ):
        monkeypatch.setenv("FAKE_CUDA_FAIL", call)
        if call == "cuMemcpyHtoDAsync" or pack.index.chunk.bytes > 65_536:
            with pytest.raises(ColdSnapError, match=rf"hydrate\.device.*{call}"):
                hydrate_pack(session, pack, places(region, 1))
        monkeypatch.delenv("FAKE_CUDA_FAIL")
        hydrate_pack(session, pack, places(region, 1))


def test_some_extents_only(
    library: Library, driver: str, region: Region, pack: PackReader, contents: dict[str, bytes]
) -> None:
    chosen = {name: place for name, place in places(region, 1).items() if name in "cfj"}
    with Session(library, Place.CUDA, threads=3, cuda_library=driver) as session:
        report = hydrate_pack(session, pack, chosen)
    assert report.bytes == sum(LENGTHS[name] for name in chosen)
    for name, place in chosen.items():
        assert region.get(place - region.address, LENGTHS[name]) == contents[name]


def test_the_kernel_is_the_reference(built: Path, build_target: Callable[[str], None]) -> None:
    build_target("coldsnap_device_blake3")
    done = subprocess.run(
        [str(built / "coldsnap_device_blake3")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "all digests are right\n"), done.stderr
