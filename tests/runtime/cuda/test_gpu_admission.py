"""What is asked of a host's GPUs before a unit is restored there."""

from __future__ import annotations

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.gpu_admission import admit_gpus, admit_launch, placed_gpus
from coldsnap_runtime.gpus import read_gpus

GIB = 1 << 30


def captured(driver, **more):
    driver.gpu(0)
    gpus = [gpu.identity() for gpu in read_gpus().found]
    return {"gpus": gpus, "process_bytes": GIB, "engine_bytes": 80 * GIB, **more}


def refusal(cuda, devices=()) -> ColdSnapError:
    with pytest.raises(ColdSnapError) as caught:
        admit_gpus(cuda, read_gpus(), devices)
    return caught.value


def test_same_gpu_needs_no_map(driver):
    assert admit_gpus(captured(driver), read_gpus()) == ()


def test_another_gpu_of_the_model_is_mapped(driver):
    cuda = captured(driver)
    driver.gpu(1)
    (pair,) = admit_gpus(cuda, read_gpus(), (1,))
    assert pair == (read_gpus().found[0].uuid, read_gpus().found[1].uuid)


def test_captured_elsewhere_takes_the_roomiest_of_the_model(driver):
    cuda = captured(driver)
    cuda["gpus"][0]["uuid"] = "GPU-" + "f" * 32
    driver.gpu(0, free=81 * GIB)
    driver.gpu(1, free=139 * GIB)
    assert admit_gpus(cuda, read_gpus())[0][1] == read_gpus().found[1].uuid


def test_other_model(driver):
    cuda = captured(driver)
    driver.gpu(0, name="NVIDIA H100")
    assert refusal(cuda).code == "gpu.model-differs"


def test_other_capability(driver):
    cuda = captured(driver)
    driver.gpu(0, name="NVIDIA B200", major=10)
    assert refusal(cuda).code == "gpu.capability-differs"


def test_memory_that_another_holds(driver):
    cuda = captured(driver)
    driver.gpu(0, free=20 * GIB, holder=4711)
    error = refusal(cuda)
    assert error.code == "gpu.memory-short"
    assert any("4711" in line for line in error.details)


def test_too_old_and_no_driver(driver):
    cuda = captured(driver)
    (driver.folder / "driver").write_text("570.10")
    assert refusal(cuda).code == "gpu.driver-too-old"
    (driver.folder / "driver").unlink()
    assert refusal(cuda).code == "gpu.driver-missing"


def test_no_such_device(driver):
    cuda = captured(driver)
    assert refusal(cuda, (3,)).code == "gpu.missing"
    assert refusal(cuda, (0, 0)).code == "gpu.missing"


def test_a_fresh_start_is_placed_by_index(driver):
    cuda = captured(driver, snapshot_driver="n580")
    assert placed_gpus(cuda, read_gpus()) == (0,)
    driver.gpu(1)
    assert placed_gpus(cuda, read_gpus(), (1,)) == (1,)
    driver.gpu(0, free=GIB)
    with pytest.raises(ColdSnapError) as caught:
        placed_gpus(cuda, read_gpus(), (0,))
    assert caught.value.code == "gpu.memory-short"


def test_the_floor_is_that_of_the_snapshot_driver(driver):
    (driver.folder / "driver").write_text("580.1")
    assert admit_gpus(captured(driver, snapshot_driver="n580"), read_gpus()) == ()
    caught = refusal(captured(driver, snapshot_driver="n610"))
    assert caught.code == "gpu.driver-too-old"
    assert caught.remedy == "install an NVIDIA driver >= 610"


def launch_refusal(visible: str, share: float) -> ColdSnapError:
    with pytest.raises(ColdSnapError) as caught:
        admit_launch(visible, share, read_gpus())
    return caught.value


def test_a_launch_finds_the_share_that_its_engine_demands(driver):
    driver.gpu(0)
    driver.gpu(1, free=54 * GIB, holder=4711)
    admit_launch("0", 0.6, read_gpus())
    admit_launch("1", 0.0, read_gpus())
    error = launch_refusal("0,1", 0.6)
    assert error.code == "gpu.memory-short"
    assert error.message.startswith("GPU 1 has 54.0 GiB free")
    assert any("process 4711 holds" in line for line in error.details)
    assert "nothing was started" in error.details


def test_a_launch_without_its_gpu(driver):
    driver.gpu(0)
    assert launch_refusal("3", 0.5).code == "gpu.missing"
    assert launch_refusal("GPU-unknown", 0.5).code == "gpu.missing"
    admit_launch(read_gpus().found[0].uuid, 0.5, read_gpus())
    (driver.folder / "driver").unlink()
    assert launch_refusal("0", 0.5).code == "gpu.driver-missing"
