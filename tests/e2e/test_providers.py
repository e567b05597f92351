"""Weights by policy, from outside: by plans and typed commands, on the reference engine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from project import ROOT, Project, complete, serves

pytestmark = [pytest.mark.criu, pytest.mark.timeout(900)]

CAPTURE, RESTORE = "reference/capture.yaml", "reference/restore.yaml"


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[Project]:
    made = Project(tmp_path_factory.mktemp("providers"), model)
    try:
        done = made.apply(CAPTURE)
        assert done.returncode == 0, done.stderr
        yield made
    finally:
        made.clean()


def payload(project: Project) -> Path:
    blobs = (project.state / "store" / "blobs" / "sha256").iterdir()
    return max(blobs, key=lambda path: path.stat().st_size)


def rot(blob: Path) -> None:
    """One bit, and no time stamp tells."""
    stat, data = blob.stat(), bytearray(blob.read_bytes())
    data[len(data) // 2] ^= 1
    blob.chmod(0o600)
    blob.write_bytes(data)
    blob.chmod(0o400)
    os.utime(blob, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def foreseen(project: Project, state: str, code: str) -> None:
    """A preview knows: under auto a row says so, under native it is an error."""
    other = {"unit": "other", "port": project.port + 1}
    said = project.diff(RESTORE, **other)
    assert said.returncode == 0, said.stderr
    assert f"{state}: weights from the model's files (recovery)" in said.stdout
    native = project.diff(RESTORE, provider="native", **other)
    assert native.returncode == 1
    assert code in native.stdout + native.stderr


def restored(project: Project, **variables: str) -> dict[str, object]:
    project.kill_units()
    done = project.apply(RESTORE, **variables)
    assert done.returncode == 0, done.stderr
    assert "same answer: yes" in done.stdout
    return dict(project.output("restore.restore", "provider"))


def test_a_lost_payload_and_what_each_policy_makes_of_it(captured: Project) -> None:
    project, before = captured, complete(captured.port)
    assert restored(project)["used"] == "native"
    blob = payload(project)
    blob.unlink()

    foreseen(project, "missing", "store.blob-missing")
    refused = project.apply(RESTORE, provider="native", unit="other", port=project.port + 1)
    assert refused.returncode == 1
    assert "store.blob-missing" in refused.stderr
    assert blob.name in refused.stderr, "it is named"
    assert complete(project.port) == before, "what served serves"

    found = restored(project)
    assert found["used"] == "recovery"
    assert [fault["code"] for fault in found["faults"]] == ["store.blob-missing"]
    assert complete(project.port) == before
    assert not blob.exists(), "nobody asked for it"

    assert restored(project, materialize="required")["used"] == "recovery"
    assert blob.exists(), "the same bytes, the same name"
    assert restored(project, provider="native")["used"] == "native"
    assert complete(project.port) == before
    again = project.diff(RESTORE, "--detailed-exitcode")
    assert again.returncode == 0, again.stdout


def test_a_payload_that_rots_quietly(captured: Project) -> None:
    """No time stamp tells; a chunk's digest does, while it is hydrated."""
    project = captured
    blob = payload(project)
    sound = blob.read_bytes()
    rot(blob)
    refused = project.apply(RESTORE, provider="native", unit="other", port=project.port + 1)
    assert refused.returncode == 1
    assert "error[pack.chunk-differs]" in refused.stderr
    assert "--var provider=recovery --var materialize=required" in refused.stderr
    foreseen(project, "quarantined", "store.blob-quarantined")
    again = project.apply(RESTORE, provider="native", unit="other", port=project.port + 1)
    assert "error[store.blob-quarantined]" in again.stderr
    assert "--var provider=recovery --var materialize=required" in again.stderr

    blob.unlink()
    blob.write_bytes(sound)  # another file: the note is void
    blob.chmod(0o400)
    assert restored(project)["used"] == "native"
    rot(blob)
    found = restored(project)
    assert found["used"] == "recovery"
    assert found["faults"][0]["code"] == "pack.chunk-differs"
    assert restored(project)["faults"][0]["code"] == "store.blob-quarantined"
    restored(project, materialize="required")
    assert restored(project)["used"] == "native", "built again, the note is void"


def test_neither_works_and_a_cold_start_is_the_last_resort(captured: Project) -> None:
    project, before = captured, complete(captured.port)
    blob = payload(project)
    kept = project.folder / "kept"
    shutil.move(blob, kept)
    touched = project.model / "model.safetensors"
    stat = touched.stat()
    os.utime(touched, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    try:
        refused = project.apply(RESTORE, unit="other", port=project.port + 1)
        assert refused.returncode == 1
        assert "provider.none-works" in refused.stderr
        assert serves(project.port)
        text = (ROOT / "plans" / RESTORE).read_text()
        plan = project.folder / "cold.yaml"
        plan.write_text(
            text.replace("artifact: reference,", "artifact: reference, cold_start: true,")
        )
        refused = project.diff(str(plan), provider="native")
        assert refused.returncode == 1
        assert "last resort of provider: auto, not of native" in refused.stderr
        project.kill_units()
        done = project.apply(str(plan))
        assert done.returncode == 0, done.stderr
        assert "started cold  reference-restore" in done.stdout
        assert "restored  " not in done.stdout
        found = project.output("restore.restore", "provider")
        assert found["used"] == "cold"
        assert found["faults"][0]["code"] == "provider.none-works"
        assert complete(project.port) == before
    finally:
        os.utime(touched, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        shutil.move(kept, blob)


def test_a_native_restore_notes_that_it_had_no_fallback(captured: Project) -> None:
    project = captured
    touched = project.model / "model.safetensors"
    stat = touched.stat()
    os.utime(touched, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    try:
        project.kill_units()
        done = project.apply(RESTORE)
    finally:
        os.utime(touched, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert done.returncode == 0, done.stderr
    note = "weights by native; recovery would not be possible: recovery.model-changed"
    assert note in done.stdout
    assert "given up" not in done.stdout


STATUS = """
coldsnap: plan/v1
name: what-runs
vars: {model: {type: path, description: folder}, port: {type: int, description: port}}
engine: reference
model: {id: reference, path: "{{ vars.model }}"}
units: [{id: engine, ports: [{inner: 8000, port: "{{ vars.port }}"}]}]
steps:
  - {id: stage, type: core.stage}
  - {id: status, type: core.status, needs: [stage], with: {demand: serving}}
"""


def test_status_tells_where_the_weights_came_from(captured: Project) -> None:
    project = captured
    restored(project, provider="recovery")
    plan = project.folder / "status.yaml"
    plan.write_text(STATUS)
    seen = project.diff(str(plan), "--all")
    assert "weights recovery" in seen.stdout
    done = project.apply(str(plan))
    assert done.returncode == 0, done.stderr
    (item,) = project.output("status", "generations")
    assert (item["state"], item["driver"], item["same"]) == ("serving", "criu", True)
    assert item["provider"]["used"] == "recovery"
    assert item["rss_bytes"] > 0
    project.kill_units()
    gone = project.apply(str(plan))
    assert gone.returncode == 1
    assert "status.not-serving" in gone.stderr
