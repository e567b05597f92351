"""A unit that is a container, by plans: captured, killed, restored by every way its pages come."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pinned_image import pull_pinned
from project import Project, complete

pytestmark = [pytest.mark.criu, pytest.mark.docker, pytest.mark.timeout(600)]

PLAN = """
coldsnap: plan/v1
name: {name}
vars: {{model: {{type: path}}, port: {{type: int}}, mode: {{type: string, default: auto}}}}
engine: reference
model: {{id: reference, path: "{{{{ vars.model }}}}"}}
units:
  - id: engine
    runtime: container
    image: {image}
    memory_guard: true
    env: {{PYTHONPATH: {packages}}}
    mounts:
      - {{source: {packages}, target: {packages}}}
    command: [/usr/bin/python3, -m, coldsnap_reference_engine, serve, --model,
              "{{{{ vars.model }}}}", --served-model-name, reference, --tune-seconds, "0"]
    ports: [{{inner: 8000, port: "{{{{ vars.port }}}}"}}]
steps: [{steps}]
"""
CAPTURE = "{uses: reference.capture, with: {name: boxed, prompts: [Once upon a time], tokens: 12}}"
RESTORE = (
    "{uses: reference.restore, with: {artifact: boxed, verify: digest, "
    'image_mode: "{{ vars.mode }}"}}'
)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    model = tmp_path / "model"
    make = [sys.executable, "-m", "coldsnap_reference_engine", "make-model", str(model)]
    subprocess.run([*make, "--size", "24MB", "--seed", "0"], check=True)
    made = Project(tmp_path / "project", model)
    yield made
    made.clean()
    for name in boxes():
        subprocess.run(["docker", "rm", "-f", name], check=True, capture_output=True)


def boxes() -> list[str]:
    words = ["docker", "ps", "-a", "--filter", "label=coldsnap.unit", "--format", "{{.Names}}"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


def test_capture_and_restore(project: Project, tmp_path: Path) -> None:
    numpy = Path(np.__file__).parent
    image, packages = pull_pinned(tmp_path, [numpy]), numpy.parent
    for name, steps in (("capture", CAPTURE), ("restore", RESTORE)):
        text = PLAN.format(name=name, image=image, packages=packages, steps=steps)
        (project.folder / f"{name}.yaml").write_text(text)

    done = project.apply(str(project.folder / "capture.yaml"))
    assert done.returncode == 0, done.stderr
    asked = complete(project.port)
    told = project.run("artifact", "inspect", "boxed", "--json", "-i", str(project.inventory))
    notes = json.loads(told.stdout)["descriptor"]["extensions"]["notes"]
    rungs = notes["process-image"]["rungs"]
    assert {rung: rungs[rung]["proven"] for rung in rungs} == {"ext": True, "mmap": True}, rungs

    for mode in ("ext", "mmap", "plain", "ext"):
        project.kill_units()
        done = project.apply(str(project.folder / "restore.yaml"), mode=mode)
        assert done.returncode == 0, done.stderr
        report = project.output("restore.restore", "process_image")
        assert (report["rung"], report["left"]) == (mode, [])
        assert complete(project.port) == asked
        assert len(boxes()) == 1, "the one before is gone"
