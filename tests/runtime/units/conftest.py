from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from native_build import build_native

from coldsnap_runtime.installation import Installation

sys.path.insert(0, str(Path(__file__).parent))
from unit_workplace import Workplace, find_criu


@pytest.fixture(scope="session")
def native_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_native(tmp_path_factory.mktemp("native"))


@pytest.fixture(scope="session")
def installation(native_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    criu = find_criu()
    python = criu.resolve().parent / "python"
    if python.is_dir():
        sys.path.insert(0, str(python))
    inside = tmp_path_factory.mktemp("inside")
    return Installation(
        criu=criu,
        unit=native_programs / "coldsnap-unit",
        portmap=native_programs / "coldsnap-portmap",
        inside=inside,
    )


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Not below /tmp: a unit has a /tmp of its own, and would not see what a test put there."""
    folder = Path(tempfile.mkdtemp(prefix="coldsnap-units-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def workplace(tmp_path: Path, installation: Installation) -> Iterator[Workplace]:
    place = Workplace(tmp_path / "state", installation)
    place.state_dir.mkdir()
    yield place
    place.stop_all()


@pytest.fixture(scope="session")
def fill_program(native_programs: Path) -> Path:
    """coldsnap-fill, whose ``seal`` a rewrite calls."""
    return native_programs / "coldsnap-fill"
