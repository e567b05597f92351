"""Driver n580 on real vLLM (CPU build): a parked template back, vLLM started, same answers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from project import Project, complete, free_port, serves

pytestmark = [pytest.mark.vllm, pytest.mark.criu, pytest.mark.timeout(1500)]

CAPTURE, RESTORE = "vllm-cpu/capture.yaml", "vllm-cpu/restore.yaml"


def ask(port: int) -> object:
    return complete(port, "The quick brown fox", 16, model="tiny", ignore_eos=True)


def newest_told(project: Project, name: str, unit: str = "vllm") -> str:
    folders = sorted((project.state / "units" / unit).glob("[0-9]*"), key=lambda p: int(p.name))
    return (folders[-1] / "control" / "template" / name).read_text()


def phases(project: Project) -> dict[str, dict[str, Any]]:
    lines = newest_told(project, "phases.jsonl").splitlines()
    return {span["name"]: span["attributes"] for span in map(json.loads, lines)}


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, object]]:
    python = Path(os.environ["COLDSNAP_VLLM_PYTHON"])
    model = Path(os.environ.get("COLDSNAP_VLLM_MODEL") or python.parents[1] / "model")
    project = Project(
        tmp_path_factory.mktemp("n580"), model, {"vllm_python": str(python.absolute())}
    )
    try:
        done = project.run(*project.plan("apply", CAPTURE, "--yes", driver="n580"), timeout=900)
        assert done.returncode == 0, done.stderr
        assert serves(project.port), "after a capture the unit serves on"
        yield project, ask(project.port)
    finally:
        project.clean()


def restored(project: Project, **changes: Any) -> str:
    project.kill_units()
    assert not serves(project.port)
    arguments = project.plan("apply", RESTORE, "--yes", driver="n580", **changes)
    done = project.run(*arguments, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "same answer: yes" in done.stdout
    return done.stderr + done.stdout


def test_this_vllm_is_one_that_the_driver_knows() -> None:
    """All functions that it builds on are there, with the parameters that it gives."""
    command = [os.environ["COLDSNAP_VLLM_PYTHON"], "-m", "coldsnap_inside_vllm.contract"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "runtime")}
    done = subprocess.run(
        command, check=False, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "vllm.v1.worker.cpu_worker.CPUWorker.determine_available_memory" in done.stdout


def test_restores_give_the_same_answer(captured: tuple[Project, object]) -> None:
    project, before = captured
    assert json.loads(newest_told(project, "parked.json"))["mode"] == "imports"
    for _ in range(2):
        restored(project)
        assert ask(project.port) == before
    found = phases(project)
    assert found["payload"]["provider"] == "native"
    assert found["payload"]["bytes"] > 0
    assert found["profile"]["planned"] is True
    assert "weights" not in found, "the model's files were not read"


def test_second_replica_on_another_port(captured: tuple[Project, object]) -> None:
    project, before = captured
    restored(project)
    other = free_port()
    arguments = project.plan("apply", RESTORE, "--yes", driver="n580", unit="replica", port=other)
    done = project.run(*arguments, timeout=600)
    assert done.returncode == 0, done.stderr
    assert ask(other) == ask(project.port) == before


def test_the_image_is_of_a_process_without_an_engine(captured: tuple[Project, object]) -> None:
    """No model byte is in it: the embedding's first row is looked for in every page."""
    project, _ = captured
    weights = (project.model / "model.safetensors").read_bytes()
    size = int.from_bytes(weights[:8], "little")
    head = json.loads(weights[8 : 8 + size])
    begin, _ = head["model.embed_tokens.weight"]["data_offsets"]
    row = weights[8 + size + begin : 8 + size + begin + 64]
    found = [
        blob.stat().st_size
        for blob in (project.state / "store" / "blobs" / "sha256").iterdir()
        if row in blob.read_bytes()
    ]
    assert len(found) == 1, "the payload pack and nothing else has it"
    assert found[0] < 64 << 20


def test_a_damaged_payload_costs_the_payload_only(captured: tuple[Project, object]) -> None:
    """Damaged behind the back of its record: found while it is loaded; vLLM reads its own files."""
    project, before = captured
    store = project.state / "store" / "blobs" / "sha256"
    pack = next(path for path in store.iterdir() if _is_pack(path))
    status = pack.stat()
    pack.chmod(0o600)
    with pack.open("r+b") as file:
        file.seek(100_000)
        byte = file.read(1)
        file.seek(100_000)
        file.write(bytes([byte[0] ^ 255]))
    pack.chmod(0o400)
    os.utime(pack, ns=(status.st_atime_ns, status.st_mtime_ns))
    said = restored(project)
    assert "pack.chunk-differs" in said
    assert ask(project.port) == before
    assert phases(project)["weights"]["provider"] == "recovery"


def _is_pack(path: Path) -> bool:
    """By the one name that the store's manifest gives it."""
    for manifest in path.parent.iterdir():
        if manifest.stat().st_size > 1 << 20:
            continue
        try:
            layers = json.loads(manifest.read_text()).get("layers", [])
        except (ValueError, AttributeError):
            continue
        for layer in layers:
            title = layer.get("annotations", {}).get("org.opencontainers.image.title", "")
            if title.endswith(".pack") and layer["digest"] == f"sha256:{path.name}":
                return True
    return False
