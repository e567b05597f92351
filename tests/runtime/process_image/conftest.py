"""Images made in memory by pycriu's own classes, and the real coldsnap-fill."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from native_build import build_native

sys.path.insert(0, str(Path(__file__).parent))

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.store.criu import find_criu


@pytest.fixture(scope="session", autouse=True)
def pycriu() -> None:
    """pycriu as it goes into a runtime pack, or that of COLDSNAP_TEST_PYCRIU (a folder)."""
    given = os.environ.get("COLDSNAP_TEST_PYCRIU")
    try:
        folder = Path(given) if given else find_criu().python
    except ColdSnapError as error:
        pytest.skip(f"no CRIU here: {error}")
    if folder is None:
        pytest.skip("this CRIU came without pycriu")
    sys.path.insert(0, str(folder))


@pytest.fixture(scope="session")
def fill_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_native(tmp_path_factory.mktemp("native"), "coldsnap-fill") / "coldsnap-fill"


@pytest.fixture
def place() -> Iterator[Path]:
    """In memory where there is room: a hundred small images are synced a hundred times."""
    shm = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="coldsnap-images-", dir=shm if shm.is_dir() else None))
    yield folder
    shutil.rmtree(folder)
