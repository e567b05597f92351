"""A unit whose engine has CUDA state, by a fake of the driver: dump, restore, and what fails."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from unit_workplace import Workplace, counter

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime import cuda_checkpoint
from coldsnap_runtime.unit_capture import Capture

sys.path.insert(0, str(Path(__file__).parents[2] / "fakes"))
from cuda_driver import FakeDriver, build_library, make_driver

pytestmark = pytest.mark.criu

ENGINE = 1001
"""Number of the engine inside its unit."""
RUNNING, LOCKED, CHECKPOINTED, FAILED = range(4)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Not below /tmp: the engine has it mapped, and a restore needs it at the same place."""
    return build_library(tmp_path)


@pytest.fixture
def driver(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    monkeypatch.setattr(cuda_checkpoint, "_MOVE_SECONDS", 2.0)
    monkeypatch.setattr(cuda_checkpoint, "LOCK_SECONDS", 0.5)
    monkeypatch.setattr(cuda_checkpoint, "_MARGIN_SECONDS", 0.5)
    fake = make_driver(tmp_path / "driver", library, monkeypatch)
    fake.gpu(0)
    (fake.folder / str(ENGINE)).write_text(str(RUNNING))
    return fake


@pytest.fixture
def engine(workplace: Workplace, driver: FakeDriver, library: Path) -> Any:
    """A counter that has the driver's library mapped."""
    text = f"import ctypes\nctypes.CDLL({str(library)!r})\n" + counter()
    return workplace.serve(workplace.script("cuda.py", text))


def captured_then_ended(workplace: Workplace, driver: FakeDriver, engine: Any) -> str:
    folder = workplace.checkpoint(engine)["capture_dir"]
    workplace.stop(engine)
    # The image carries the state of the moment of its dump.
    (driver.folder / str(ENGINE)).write_text(str(CHECKPOINTED))
    return str(folder)


def test_dumped_without_cuda_state_and_serving_on(workplace, driver, engine):
    result = workplace.checkpoint(engine)
    assert driver.state(ENGINE) == RUNNING
    assert workplace.answers(engine)
    assert result["cuda"]["snapshot_driver"] == "c580"
    assert [item["pid"] for item in result["cuda"]["processes"]] == [ENGINE]
    record = Capture.read(Path(result["capture_dir"])).cuda
    assert record is not None
    assert record["gpus"][0]["name"] == "NVIDIA H200"


def test_restored_with_it(workplace, driver, engine):
    before = workplace.ask(engine)
    image = captured_then_ended(workplace, driver, engine)
    restored = workplace.restore(image)
    assert driver.state(ENGINE) == RUNNING
    after = workplace.ask(restored)
    assert after["sha"] == before["sha"]
    assert after["n"] > before["n"]


def test_n610_is_recorded_and_demands_its_driver(workplace, driver, engine):
    """The parts are those of c580; the floor is its own, at every restore."""
    (driver.folder / "driver").write_text("610.43.02")
    result = workplace.checkpoint(engine, driver="n610")
    assert result["cuda"]["snapshot_driver"] == "n610"
    workplace.stop(engine)
    (driver.folder / str(ENGINE)).write_text(str(CHECKPOINTED))
    restored = workplace.restore(result["capture_dir"])
    assert driver.state(ENGINE) == RUNNING
    workplace.stop(restored)
    (driver.folder / "driver").write_text("580.159.04")
    with pytest.raises(ColdSnapError) as caught:
        workplace.restore(result["capture_dir"])
    assert caught.value.code == "gpu.driver-too-old"
    assert "580.159.04 is older than 610" in caught.value.message


def test_lock_that_hangs_leaves_it_serving(workplace, driver, engine):
    driver.fault("lock", ENGINE, "hang once")
    with pytest.raises(ColdSnapError) as caught:
        workplace.checkpoint(engine)
    assert caught.value.code == "cuda.hung"
    assert not caught.value.changed
    assert driver.state(ENGINE) == RUNNING
    assert workplace.answers(engine)
    folder = workplace.state_dir / "captures" / "u0"
    assert not folder.exists() or not list(folder.iterdir())


def test_out_of_memory_at_a_restore_leaves_nothing_running(workplace, driver, engine):
    image = captured_then_ended(workplace, driver, engine)
    driver.fault("restore", ENGINE, "2 once")
    with pytest.raises(ColdSnapError) as caught:
        workplace.restore(image)
    assert caught.value.code == "cuda.out-of-memory"
    assert not [record for record in workplace.store.generations("u0") if record.is_live]


def test_too_little_memory_is_found_before_anything_starts(workplace, driver, engine):
    image = captured_then_ended(workplace, driver, engine)
    driver.gpu(0, free=1 << 20, holder=4711)
    (driver.folder / "log").unlink()
    with pytest.raises(ColdSnapError) as caught:
        workplace.restore(image)
    assert caught.value.code == "gpu.memory-short"
    assert not driver.log(), "the driver was not asked for anything"
