"""A program that does everything to its memory after a real restore: as if never captured."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from unit_workplace import DIGEST, Workplace, build_native, wait_until

from coldsnap_runtime.timing import Timing
from coldsnap_runtime.unit_requests import RestoreRequest
from coldsnap_runtime.unit_restore import restore_by_ladder

pytestmark = pytest.mark.criu


@pytest.fixture(scope="session")
def torture(native_programs: Path) -> Path:
    return build_native(native_programs, "coldsnap_torture") / "guard" / "coldsnap_torture"


@pytest.fixture(scope="session")
def twin(torture: Path) -> list[str]:
    """What the program says that was never captured."""
    done = subprocess.run([torture, "plain"], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) > 50
    assert lines[-1] == "done"
    return lines


@pytest.fixture
def program(workplace: Workplace, torture: Path) -> Path:
    folder = workplace.script("unused", "").parent
    shutil.copy(torture, folder / "torture")
    return folder / "torture"


@pytest.fixture
def image(workplace: Workplace, program: Path) -> Path:
    """The program with its memory made, captured before it does anything to it."""
    go = program.with_name("go")
    first = workplace.launch(program, argv=[str(program), "wait", str(go)], memory_guard=True)
    wait_until(lambda: "ready" in workplace.log(first), "the program's memory")
    first = workplace.store.update(first, state="serving")
    capture: dict[str, Any] = workplace.checkpoint(first)
    workplace.stop(first)
    return Path(capture["capture_dir"])


@pytest.mark.parametrize("mode", ["ext", "mmap", "plain"])
def test_a_restored_program_is_like_its_twin(
    workplace: Workplace, program: Path, image: Path, twin: list[str], mode: str
) -> None:
    request = RestoreRequest("u0", "r", image, DIGEST, image_mode=mode)
    done = restore_by_ladder(request, workplace.context, workplace.installation, Timing())
    assert (done.process_image["rung"], done.process_image["left"]) == (mode, [])
    program.with_name("go").touch()
    wait_until(
        lambda: workplace.log(done.record).endswith("done\n"), "the program's last word", 60.0
    )
    said = workplace.log(done.record).splitlines()
    assert [line for line in said if line != "ready"] == twin
