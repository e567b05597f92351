from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small model for the reference engine."""
    folder = tmp_path_factory.mktemp("model")
    make = [sys.executable, "-m", "coldsnap_reference_engine", "make-model", str(folder)]
    subprocess.run([*make, "--size", "24MB", "--seed", "0"], check=True)
    return folder
