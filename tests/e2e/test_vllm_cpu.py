"""The main job on real vLLM (CPU build): capture, kill, restore, another port, a replica."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from project import Project, complete, free_port, serves

pytestmark = [pytest.mark.vllm, pytest.mark.criu, pytest.mark.timeout(1500)]

CAPTURE, RESTORE = "vllm-cpu/capture.yaml", "vllm-cpu/restore.yaml"


def ask(port: int) -> object:
    return complete(port, "The quick brown fox", 16, model="tiny", ignore_eos=True)


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, object]]:
    python = Path(os.environ["COLDSNAP_VLLM_PYTHON"])
    model = Path(os.environ.get("COLDSNAP_VLLM_MODEL") or python.parents[1] / "model")
    project = Project(
        tmp_path_factory.mktemp("vllm"), model, {"vllm_python": str(python.absolute())}
    )
    try:
        done = project.run(*project.plan("apply", CAPTURE, "--yes"), timeout=900)
        assert done.returncode == 0, done.stderr
        assert serves(project.port), "after a capture the unit serves on"
        yield project, ask(project.port)
    finally:
        project.clean()


def test_restores_give_the_same_answer(captured: tuple[Project, object]) -> None:
    project, before = captured
    for _ in range(3):
        project.kill_units()
        assert not serves(project.port)
        done = project.apply(RESTORE)
        assert done.returncode == 0, done.stderr
        assert "same answer: yes" in done.stdout
        assert ask(project.port) == before


def test_changed_port(captured: tuple[Project, object]) -> None:
    project, before = captured
    project.kill_units()
    other = free_port()
    done = project.apply(RESTORE, port=other)
    assert done.returncode == 0, done.stderr
    assert ask(other) == before
    assert not serves(project.port)


def test_second_replica_beside_the_first(captured: tuple[Project, object]) -> None:
    project, before = captured
    project.kill_units()
    other = free_port()
    first = project.start(*project.plan("apply", RESTORE, "--yes"))
    second = project.start(*project.plan("apply", RESTORE, "--yes", unit="replica", port=other))
    for run in (first, second):
        out, err = run.communicate(timeout=300)
        assert run.returncode == 0, out + err
    assert ask(project.port) == before
    assert ask(other) == before


def test_the_image_holds_no_kv(captured: tuple[Project, object]) -> None:
    """One GiB of KV cache was configured; the whole artifact is smaller than that."""
    project, _before = captured
    blobs = (project.state / "store" / "blobs" / "sha256").iterdir()
    assert sum(path.stat().st_size for path in blobs) < 1 << 30


def test_weights_read_again_from_the_models_own_files(captured: tuple[Project, object]) -> None:
    """On CPU they are in the image; recovery replays them into the same layout all the same."""
    project, before = captured
    for provider, used in (("recovery", "recovery"), ("auto", "image")):
        project.kill_units()
        done = project.apply(RESTORE, provider=provider)
        assert done.returncode == 0, done.stderr
        assert project.output("restore.restore", "provider")["used"] == used
        assert ask(project.port) == before


def test_a_changed_model_is_no_recovery(captured: tuple[Project, object]) -> None:
    project, before = captured
    assert serves(project.port)
    config = project.model / "config.json"
    stat = config.stat()
    try:
        os.utime(config, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
        done = project.apply(RESTORE, provider="recovery", port=free_port())
        assert done.returncode == 1
        assert "recovery.model-changed" in done.stderr
        assert ask(project.port) == before, "what served serves"
    finally:
        os.utime(config, ns=(stat.st_atime_ns, stat.st_mtime_ns))
