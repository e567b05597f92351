"""Where the time of a session and of a transfer goes, by the clock."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from coldsnap_runtime.hydrate import Library, Region, Session
from coldsnap_runtime.hydrate.bench_file import HostMemory, make_file
from coldsnap_runtime.hydrate.bench_variants import Mapping
from coldsnap_runtime.hydrate.report import Report
from coldsnap_runtime.hydrate.structures import Algorithm, Place, Waits

MIB = 1 << 20


def test_the_parts_of_an_opening(
    monkeypatch: pytest.MonkeyPatch, library: Library, fake_cuda: Path
) -> None:
    monkeypatch.setenv("FAKE_CUDA_PIN_US", "2000")
    with Session(
        library, Place.CUDA, threads=4, slots=2, slot_bytes=2 * MIB, cuda_library=str(fake_cuda)
    ) as session:
        found = session.opening()
    parts = {name: seconds for name, seconds in found.items() if name != "open"}
    assert set(parts) == {"threads", "driver", "touch", "pin", "streams", "digests"}
    assert parts["pin"] >= 16 * 0.002
    assert sum(parts.values()) <= found["open"]


def test_a_session_for_host_memory_pins_nothing(library: Library) -> None:
    with Session(library, threads=2) as session:
        assert set(session.opening()) == {"open", "threads"}


@pytest.mark.parametrize("waits", [Waits.SLEEP, Waits.SPIN], ids=["sleep", "spin"])
def test_each_eighth_is_told_and_every_byte_right(
    library: Library, fake_cuda: Path, tmp_path: Path, waits: Waits
) -> None:
    file = make_file(library, tmp_path, 48 * MIB)
    with (
        Region(library, file.size, cuda_library=str(fake_cuda)) as region,
        Session(
            library, Place.CUDA, threads=4, slots=2, slot_bytes=MIB, block_bytes=MIB, waits=waits,
            cuda_library=str(fake_cuda),
        ) as session,
    ):  # fmt: skip
        report = Report.of(session.read(file.transfer(region.address, Algorithm.BLAKE3)))
        assert region.get(0, file.size) == file.path.read_bytes()
    clock = report.clock
    marks = [clock["first"], *(clock[f"eighth_{i}"] for i in range(1, 9))]
    assert marks == sorted(marks)
    assert marks[0] > 0
    assert marks[-1] + clock["drain"] == pytest.approx(report.seconds, abs=0.001)
    assert report.stages["copy_wait"] > 0
    assert (
        report.stages["copy_wait"] + report.stages["digest_wait"] <= report.stages["wait"] + 0.001
    )


def test_eighths_of_a_transfer_to_host_memory(library: Library, tmp_path: Path) -> None:
    file = make_file(library, tmp_path, 32 * MIB)
    memory = HostMemory(file.size)
    with Session(library) as session:
        report = Report.of(session.read(file.transfer(memory.address, Algorithm.BLAKE3)))
    assert report.engine == "host"
    assert report.clock["eighth_8"] <= report.seconds
    assert "longest_send" not in report.clock


def test_a_driver_that_is_busy_with_mapping_shows(
    monkeypatch: pytest.MonkeyPatch, library: Library, fake_cuda: Path, tmp_path: Path
) -> None:
    """As an engine's KV cache is mapped while its weights come; the fake has one lock for both."""
    monkeypatch.setenv("FAKE_CUDA_MAP_MS", "300")
    monkeypatch.setenv("FAKE_CUDA_DELAY_US", "10000")  # so that the transfer is still going on
    file = make_file(library, tmp_path, 48 * MIB)
    with (
        Region(library, file.size, cuda_library=str(fake_cuda)) as region,
        Session(
            library, Place.CUDA, threads=4, slots=2, slot_bytes=MIB, block_bytes=MIB,
            cuda_library=str(fake_cuda),
        ) as session,
    ):  # fmt: skip
        transfer = file.transfer(region.address, Algorithm.BLAKE3)
        alone = Report.of(session.read(transfer))
        mapping = Mapping(library, 2 * MIB, str(fake_cuda))
        with mapping:
            beside = Report.of(session.read(transfer))
    assert mapping.seconds["map"] >= 0.3
    assert alone.clock["longest_send"] < 0.2
    assert beside.clock["longest_send"] >= 0.2


def test_no_memory_is_read_after_a_failed_opening(
    monkeypatch: pytest.MonkeyPatch, library: Library, fake_cuda: Path
) -> None:
    """Threads are there before the ring now: a failure in between ends them."""
    threads = Path("/proc/self/task")
    before = len(list(threads.iterdir()))
    for name in ("cuMemHostRegister", "cuStreamCreate", "cuEventCreate"):
        monkeypatch.setenv("FAKE_CUDA_FAIL", name)
        with pytest.raises(Exception, match="fake failure"):
            Session(library, Place.CUDA, threads=4, cuda_library=str(fake_cuda))
    monkeypatch.delenv("FAKE_CUDA_FAIL")
    assert len(list(threads.iterdir())) == before
    counts = (ctypes.c_long * 9)()
    ctypes.CDLL(str(fake_cuda)).fake_cuda_left(counts)
    assert list(counts) == [0] * 9
