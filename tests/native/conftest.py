"""The native programs, built here: as they ship, and under the sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cmake") is None or shutil.which("cc") is None:
        pytest.skip("needs cmake and a C compiler to build native/")
    folder = tmp_path_factory.mktemp("native")
    for command in (
        ["cmake", "-S", str(NATIVE), "-B", str(folder), "-DCOLDSNAP_WERROR=ON"],
        ["cmake", "--build", str(folder), "--parallel", "2"],
        ["cmake", "--build", str(folder), "--target", "coldsnap-portmap-sanitized"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="session")
def build_target(programs: Path) -> Callable[[str], None]:
    """Builds a target that is not built by default."""

    def build(target: str) -> None:
        command = ["cmake", "--build", str(programs), "--target", target, "--parallel", "2"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    return build


@pytest.fixture(params=["coldsnap-portmap", "coldsnap-portmap-sanitized"])
def portmap_program(request: pytest.FixtureRequest, programs: Path) -> Path:
    return programs / str(request.param)
