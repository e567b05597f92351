"""A program that does everything to its memory after a real restore: as if never captured."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from native_build import build_native
from unit_workplace import DIGEST, Workplace
from waiting import wait_for

from coldsnap_runtime.timing import Timing
from coldsnap_runtime.unit_capture import Capture
from coldsnap_runtime.unit_requests import RestoreRequest
from coldsnap_runtime.unit_restore import restore_by_ladder

pytestmark = pytest.mark.criu


PYTHON = Path(__file__).parents[2] / "native" / "guard" / "torture.py"


@pytest.fixture(scope="session", params=["c", "python"])
def torture(request: pytest.FixtureRequest, native_programs: Path) -> list[str]:
    """A command; what it is told comes behind."""
    if request.param == "python":
        return [os.path.realpath("/proc/self/exe"), str(PYTHON)]
    return [str(build_native(native_programs, "coldsnap_torture") / "guard" / "coldsnap_torture")]


@pytest.fixture(scope="session")
def twin(torture: list[str]) -> list[str]:
    """What the program says that was never captured."""
    done = subprocess.run([*torture, "plain"], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[-1] == "done"
    return lines


@pytest.fixture
def go(workplace: Workplace) -> Path:
    """The file that lets the program go on, in a folder that the unit sees."""
    return workplace.script("unused", "").with_name("go")


@pytest.fixture
def image(workplace: Workplace, torture: list[str], go: Path) -> Path:
    """The program with its memory made, captured before it does anything to it."""
    program = Path(torture[-1])
    shutil.copy(program, go.with_name(program.name))
    argv = [*torture[:-1], str(go.with_name(program.name)), "wait", str(go)]
    first = workplace.launch(go, argv=argv, memory_guard=True)
    wait_for(lambda: "ready" in workplace.log(first), "the program's memory")
    first = workplace.store.update(first, state="serving")
    capture: dict[str, Any] = workplace.checkpoint(first)
    workplace.stop(first)
    return Path(capture["capture_dir"])


@pytest.mark.parametrize("mode", ["ext", "mmap", "plain"])
def test_a_restored_program_is_like_its_twin(
    workplace: Workplace, go: Path, image: Path, twin: list[str], mode: str
) -> None:
    request = RestoreRequest("u0", "r", image, DIGEST, image_mode=mode)
    done = restore_by_ladder(request, workplace.context, workplace.installation, Timing())
    assert (done.process_image["rung"], done.process_image["left"]) == (mode, [])
    go.touch()
    wait_for(lambda: workplace.log(done.record).endswith("done\n"), "the program's last word", 60.0)
    said = workplace.log(done.record).splitlines()
    assert [line for line in said if line != "ready"] == twin


def test_a_program_that_lost_the_guard_is_not_mapped(workplace: Workplace, go: Path) -> None:
    """`env` takes the preload away before the program starts."""
    argv = ["env", "-u", "LD_PRELOAD", os.path.realpath("/proc/self/exe"), str(PYTHON)]
    shutil.copy(PYTHON, go.with_name(PYTHON.name))
    argv[-1] = str(go.with_name(PYTHON.name))
    first = workplace.launch(go, argv=[*argv, "wait", str(go)], memory_guard=True)
    wait_for(lambda: "ready" in workplace.log(first), "the program's memory")
    first = workplace.store.update(first, state="serving")
    capture = Path(workplace.checkpoint(first)["capture_dir"])
    rungs = Capture.read(capture).process_image["rungs"]
    assert rungs["ext"]["proven"] is True
    assert "runs without the memory guard" in rungs["mmap"]["reason"]
    assert not (capture / "mmap").exists()
