"""Checkpoint calls of the driver, driven against a fake of it with faults."""

from __future__ import annotations

import os
import threading
import time

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime import cuda_checkpoint
from coldsnap_runtime.cuda_checkpoint import CudaSquad, put_back, resume, suspend, with_cuda
from coldsnap_runtime.cuda_errors import CudaProcess

RUNNING, LOCKED, CHECKPOINTED, FAILED = range(4)


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Deadlines that a test can wait for."""
    monkeypatch.setattr(cuda_checkpoint, "_MOVE_SECONDS", 1.0)
    monkeypatch.setattr(cuda_checkpoint, "_MARGIN_SECONDS", 0.5)
    monkeypatch.setattr(cuda_checkpoint, "LOCK_SECONDS", 0.5)
    monkeypatch.setattr(cuda_checkpoint, "_STATE_SECONDS", 2.0)


@pytest.fixture
def squad(driver):
    with CudaSquad(2) as made:
        yield made


@pytest.fixture
def pair(driver):
    """A child and its parent, in this order."""
    return [CudaProcess(driver.process(), "EngineCore", 1002), CudaProcess(driver.process(), "api")]


def failing(work, *arguments) -> ColdSnapError:
    with pytest.raises(ColdSnapError) as caught:
        work(*arguments)
    return caught.value


def test_out_and_back(driver, squad, pair):
    timings = suspend(squad, pair)
    assert [driver.state(p.pid) for p in pair] == [CHECKPOINTED] * 2
    assert [call for call, _, _ in timings.calls] == ["lock", "lock", "checkpoint", "checkpoint"]
    calls = [line.split()[0] for line in driver.log() if not line.startswith("init")]
    assert calls == ["lock", "lock", "checkpoint", "checkpoint"], "all locked before one moves"
    resume(squad, pair)
    assert [driver.state(p.pid) for p in pair] == [RUNNING] * 2


def test_who_has_cuda(driver, squad, pair):
    without = CudaProcess(driver.process(None), "sh")
    assert with_cuda(squad, [*pair, without], lambda _pid: False) == pair


def test_device_without_cuda_state_is_named(driver, squad):
    process = CudaProcess(driver.process(None), "nvml-user")
    error = failing(with_cuda, squad, [process], lambda pid: pid == process.pid)
    assert error.code == "cuda.not-checkpointable"
    assert "nvml-user" in error.message


def test_thread_id_is_no_process(driver, squad):
    started, end = threading.Event(), threading.Event()
    numbers: list[int] = []

    def run() -> None:
        numbers.append(threading.get_native_id())
        started.set()
        end.wait()

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    try:
        error = failing(with_cuda, squad, [CudaProcess(numbers[0])], lambda _pid: False)
        assert error.code == "cuda.not-a-process"
        assert "state" not in " ".join(driver.log()), "the driver was not asked"
    finally:
        end.set()
        thread.join()


def test_one_that_is_checkpointed_already_is_refused(driver, squad):
    process = CudaProcess(driver.process(CHECKPOINTED))
    assert failing(with_cuda, squad, [process], lambda _pid: False).code == "cuda.busy"


def test_lock_that_hangs_has_a_deadline_and_the_other_runs_again(driver, squad, pair):
    driver.fault("lock", pair[0].pid, "hang once")
    begin = time.monotonic()
    error = failing(suspend, squad, pair)
    assert error.code == "cuda.hung"
    assert time.monotonic() - begin < 10
    assert [driver.state(p.pid) for p in pair] == [RUNNING] * 2
    assert "all its processes run again" in error.details
    assert not error.changed


def test_lock_that_the_driver_gives_up(driver, squad, pair):
    driver.fault("lock", pair[1].pid, "600")
    error = failing(suspend, squad, pair)
    assert error.code == "cuda.lock-timeout"
    assert driver.state(pair[0].pid) == RUNNING


def test_checkpoint_that_fails_is_walked_back(driver, squad, pair):
    driver.fault("checkpoint", pair[1].pid, "801")
    error = failing(suspend, squad, pair)
    assert error.code == "cuda.checkpoint-failed"
    assert [driver.state(p.pid) for p in pair] == [RUNNING] * 2


def test_what_cannot_be_put_back_is_said(driver, squad, pair):
    driver.fault("checkpoint", pair[1].pid, "801")
    driver.fault("restore", pair[0].pid, "2 once")
    error = failing(suspend, squad, pair)
    assert error.changed
    assert any("EngineCore" in line and "cannot go on" in line for line in error.details)
    assert driver.state(pair[1].pid) == RUNNING


def test_out_of_memory_then_304_for_ever(driver, squad, pair):
    suspend(squad, pair)
    driver.fault("restore", pair[0].pid, "2 once")
    first = failing(resume, squad, pair)
    assert first.code == "cuda.out-of-memory"
    assert "do not retry in place" in first.remedy
    assert first.changed
    again = failing(resume, squad, pair[:1])
    assert again.code == "cuda.restore-failed"
    assert "304" in again.details[0]
    assert put_back(squad, pair[:1])


def test_target_that_dies(driver, squad, pair):
    driver.kill(pair[0].pid)
    driver.fault("lock", pair[0].pid, "304")
    error = failing(suspend, squad, pair)
    assert error.code == "cuda.process-died"
    assert driver.state(pair[1].pid) == RUNNING


def test_library_that_crashes_takes_no_verb_along(driver, squad, pair):
    driver.fault("checkpoint", pair[0].pid, "crash once")
    error = failing(suspend, squad, pair)
    assert error.code == "cuda.unusable"
    assert [driver.state(p.pid) for p in pair] == [RUNNING] * 2


def test_no_library(driver, monkeypatch):
    monkeypatch.setenv("COLDSNAP_LIBCUDA", "/nonexistent/libcuda.so.1")
    with CudaSquad(1) as squad:
        process = CudaProcess(os.getpid())
        assert failing(with_cuda, squad, [process], lambda _pid: False).code == "cuda.unusable"


def test_pairs_reach_the_driver(driver, squad, pair):
    suspend(squad, pair)
    old, new = "GPU-aa" + "0" * 6 + "-0000-0000-0000-" + "0" * 12, "GPU-bb" + "0" * 30
    resume(squad, pair, pairs=((old, new),))
    assert driver.log().count("pair aa bb") == 2
