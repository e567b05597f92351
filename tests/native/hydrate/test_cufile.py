"""File -> device memory by libcufile, against a stand-in that fails where it is told to.

Real hardware with GPUDirect Storage was not at hand: this shows the way back to the ring.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from host_memory import LENGTHS, places

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.pack import PackReader, open_pack
from coldsnap_runtime.hydrate import Library, Region, Session, Source, hydrate_pack, write_pack
from coldsnap_runtime.hydrate.session import ENGINE_VARIABLE, Cancel
from coldsnap_runtime.hydrate.structures import Engine, Place

CHUNK = 64 << 10
MIB = 1 << 20


@pytest.fixture
def counts(fake_cufile: Path) -> Callable[[], tuple[int, int, int]]:
    """Drivers and handles that are open; reads so far."""
    stub = ctypes.CDLL(str(fake_cufile))

    def found() -> tuple[int, int, int]:
        numbers = (ctypes.c_long * 3)()
        stub.fake_cufile_left(numbers)
        return numbers[0], numbers[1], numbers[2]

    return found


@pytest.fixture
def opened(
    library: Library, fake_cuda: Path, fake_cufile: Path, counts: Callable[[], tuple[int, int, int]]
) -> Iterator[Callable[..., Session]]:
    sessions: list[Session] = []

    def make(engine: Engine | None = Engine.CUFILE, cufile: str = str(fake_cufile)) -> Session:
        sessions.append(
            Session(
                library, Place.CUDA, threads=4, slots=2, slot_bytes=CHUNK, engine=engine,
                cuda_library=str(fake_cuda), cufile_library=cufile,
            )
        )  # fmt: skip
        return sessions[-1]

    yield make
    for session in sessions:
        session.close()
    assert counts()[:2] == (0, 0)


@pytest.fixture
def region(library: Library, fake_cuda: Path) -> Iterator[Region]:
    with Region(library, 2 * MIB, cuda_library=str(fake_cuda)) as made:
        made.zero()
        yield made


@pytest.fixture
def blake3_pack(
    library: Library, contents: dict[str, bytes], tmp_path: Path
) -> Iterator[PackReader]:
    buffers = {
        name: ctypes.create_string_buffer(data, len(data) + 1) for name, data in contents.items()
    }
    sources = [
        Source(name, LENGTHS[name], ctypes.addressof(buffer)) for name, buffer in buffers.items()
    ]
    with Session(library, threads=2) as session:
        ref = write_pack(session, tmp_path / "native", sources, chunk_bytes=CHUNK)
    with open_pack(ref.body, ref.index) as pack:
        yield pack


def assert_there(region: Region, contents: dict[str, bytes]) -> None:
    for name, address in places(region).items():
        assert region.get(address - region.address, LENGTHS[name]) == contents[name]


def test_every_byte_comes_by_it_and_is_digested_by_the_device(
    opened: Callable[..., Session],
    region: Region,
    blake3_pack: PackReader,
    contents: dict[str, bytes],
    counts: Callable[[], tuple[int, int, int]],
) -> None:
    session = opened()
    report = hydrate_pack(session, blake3_pack, places(region))
    assert_there(region, contents)
    assert (report.engine, report.engine_reason) == ("cufile", "")
    total = sum(LENGTHS.values())
    assert report.bytes == report.direct_bytes == report.device_digest_bytes == total
    assert counts()[2] == sum(-(-length // CHUNK) for length in LENGTHS.values())
    assert report.clock["eighth_8"] >= report.clock["first"] > 0


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("open", "cuFileDriverOpen failed: cuFile error 5002"),
        ("properties", "cuFileDriverGetProperties failed: cuFile error 5003"),
        ("compat", "copy through host memory"),
        ("register", "cuFileHandleRegister failed: cuFile error 5027"),
        ("read", "cuFileRead failed: cuFile error 5030"),
        ("errno", "cuFileRead: Input/output error"),
        ("empty", "fewer bytes than were asked for"),
        ("wrong", "cuFile brought other bytes: extent "),
    ],
)
def test_where_it_fails_the_ring_brings_the_bytes_and_tells_why(
    monkeypatch: pytest.MonkeyPatch,
    opened: Callable[..., Session],
    region: Region,
    blake3_pack: PackReader,
    contents: dict[str, bytes],
    fault: str,
    reason: str,
) -> None:
    monkeypatch.setenv("FAKE_CUFILE", fault)
    report = hydrate_pack(opened(), blake3_pack, places(region))
    assert_there(region, contents)
    assert report.engine == "ring"
    assert reason in report.engine_reason
    assert report.bytes == sum(LENGTHS.values())


def test_a_short_read_is_gone_on_with(
    monkeypatch: pytest.MonkeyPatch,
    opened: Callable[..., Session],
    region: Region,
    blake3_pack: PackReader,
    contents: dict[str, bytes],
) -> None:
    monkeypatch.setenv("FAKE_CUFILE", "short")
    report = hydrate_pack(opened(), blake3_pack, places(region))
    assert_there(region, contents)
    assert report.engine == "cufile"


def test_a_machine_without_it(
    opened: Callable[..., Session],
    region: Region,
    blake3_pack: PackReader,
    contents: dict[str, bytes],
) -> None:
    report = hydrate_pack(
        opened(cufile="libcufile-that-is-not-there.so"), blake3_pack, places(region)
    )
    assert_there(region, contents)
    assert report.engine == "ring"
    assert "no cuFile" in report.engine_reason


def test_what_it_cannot_do_goes_by_the_ring(
    opened: Callable[..., Session], region: Region, pack: PackReader, contents: dict[str, bytes]
) -> None:
    report = hydrate_pack(opened(), pack, places(region))  # SHA-256 chunks
    assert_there(region, contents)
    assert (report.engine, report.engine_reason) == ("ring", "the device digests BLAKE3 only")


def test_damage_is_damage_by_either(
    opened: Callable[..., Session], region: Region, blake3_pack: PackReader
) -> None:
    path = Path(blake3_pack.name)
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(CHUNK + 5)
        byte = file.read(1)[0]
        file.seek(CHUNK + 5)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(ColdSnapError) as error:
        hydrate_pack(opened(), blake3_pack, places(region))
    assert error.value.code == "pack.chunk-differs"
    assert "extent 'a', chunk 1" in error.value.message


def test_who_cancels_gets_no_second_attempt(
    opened: Callable[..., Session],
    region: Region,
    blake3_pack: PackReader,
    counts: Callable[[], tuple[int, int, int]],
) -> None:
    cancel = Cancel()
    cancel.set()
    with pytest.raises(ColdSnapError) as error:
        hydrate_pack(opened(), blake3_pack, places(region), cancel=cancel)
    assert error.value.code == "hydrate.cancelled"
    assert not any(region.get(0, 4096))


def test_only_who_asks_gets_it(
    monkeypatch: pytest.MonkeyPatch,
    opened: Callable[..., Session],
    region: Region,
    blake3_pack: PackReader,
    counts: Callable[[], tuple[int, int, int]],
) -> None:
    monkeypatch.delenv(ENGINE_VARIABLE, raising=False)
    assert hydrate_pack(opened(None), blake3_pack, places(region)).engine == "ring"
    monkeypatch.setenv(ENGINE_VARIABLE, "cufile")
    assert hydrate_pack(opened(None), blake3_pack, places(region)).engine == "cufile"
    monkeypatch.setenv(ENGINE_VARIABLE, "no such engine")
    assert hydrate_pack(opened(None), blake3_pack, places(region)).engine == "ring"


class Large:
    """A pack of four extents, 96 MiB each, which repeat a MiB; and device memory for it."""

    def __init__(self, library: Library, fake_cuda: Path, folder: Path) -> None:
        self.size = 96 * MIB
        self.block = os.urandom(MIB)
        whole = ctypes.create_string_buffer(self.block * 384, self.size * 4)
        names = [f"e{i}" for i in range(4)]
        start = ctypes.addressof(whole)
        sources = [Source(n, self.size, start + i * self.size) for i, n in enumerate(names)]
        with Session(library, threads=2) as session:
            self.ref = write_pack(session, folder, sources)
        self.region = Region(library, self.size * 4, cuda_library=str(fake_cuda))
        self.places = {name: self.region.address + i * self.size for i, name in enumerate(names)}

    def is_there(self) -> bool:
        starts = range(0, self.size * 4, self.size // 2)
        return all(self.region.get(at, MIB) == self.block for at in starts)


@pytest.fixture
def large(library: Library, fake_cuda: Path, tmp_path: Path) -> Iterator[Large]:
    made = Large(library, fake_cuda, tmp_path)
    yield made
    made.region.free()


@pytest.mark.parametrize(("delay", "engine"), [("0", None), ("500000", "ring")])
def test_the_faster_one_brings_the_rest(
    monkeypatch: pytest.MonkeyPatch,
    large: Large,
    opened: Callable[..., Session],
    counts: Callable[[], tuple[int, int, int]],
    delay: str,
    engine: str | None,
) -> None:
    """The first extents by the ring, the next by libcufile; what is slow is left."""
    monkeypatch.setenv("FAKE_CUFILE_DELAY_US", delay)
    session = opened(Engine.MEASURED)
    with open_pack(large.ref.body, large.ref.index) as pack:
        report = hydrate_pack(session, pack, large.places)
    assert large.is_there()
    assert report.bytes == 4 * large.size
    assert counts()[2] >= large.size // (4 << 20), "it was tried"
    if engine is not None:
        assert report.engine == engine
        assert "libcufile read" in report.engine_reason
        assert counts()[2] == large.size // (4 << 20)


def test_too_little_to_measure(
    opened: Callable[..., Session],
    region: Region,
    blake3_pack: PackReader,
    counts: Callable[[], tuple[int, int, int]],
) -> None:
    report = hydrate_pack(opened(Engine.MEASURED), blake3_pack, places(region))
    assert (report.engine, report.engine_reason) == ("ring", "too little to measure")
    assert counts()[2] == 0
