"""`preload:` of a plan: the engine has the libraries, before a capture and after its restore."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from project import ROOT, Project, complete

pytestmark = [pytest.mark.criu, pytest.mark.timeout(600)]

NAMES = ("nccl", "nvml", "mmap")


def below(pid: int) -> list[int]:
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*children, *(one for child in children for one in below(child))]


def mapped(project: Project) -> set[str]:
    """Libraries of ColdSnap below /run/coldsnap that the unit's processes map."""
    (record,) = project.live()
    maps = [Path(f"/proc/{pid}/maps").read_text() for pid in below(record["init"]["pid"])]
    return {name for name in NAMES for text in maps if f"bin/libcoldsnap_{name}.so" in text}


def test_over_a_capture(tmp_path: Path) -> None:
    model = tmp_path / "model"
    make = [sys.executable, "-m", "coldsnap_reference_engine", "make-model", str(model)]
    subprocess.run([*make, "--size", "20MB", "--seed", "0"], check=True)
    project = Project(tmp_path, model)
    plans = {}
    for name in ("capture", "restore"):
        text = (ROOT / "plans" / "reference" / f"{name}.yaml").read_text()
        assert ", ports:" in text
        plans[name] = project.folder / f"{name}.yaml"
        plans[name].write_text(text.replace(", ports:", f", preload: [{', '.join(NAMES)}], ports:"))
    try:
        done = project.apply(str(plans["capture"]))
        assert done.returncode == 0, done.stderr
        assert mapped(project) == set(NAMES)
        before = complete(project.port)
        project.kill_units()
        done = project.apply(str(plans["restore"]))
        assert done.returncode == 0, done.stderr
        assert mapped(project) == set(NAMES)
        assert complete(project.port) == before
    finally:
        project.clean()


def test_a_name_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    project = Project(tmp_path, tmp_path / "model")
    plan = tmp_path / "capture.yaml"
    text = (ROOT / "plans" / "reference" / "capture.yaml").read_text()
    plan.write_text(text.replace(", ports:", ", preload: [nvlm], ports:"))
    done = project.run("plan", "validate", str(plan), "--var", "model=/m")
    assert done.returncode != 0
    assert "nvlm" in done.stderr
    assert "nvml" in done.stderr
