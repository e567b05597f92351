"""Makes `plan_pack` and `plan_cases` importable."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from plan_pack import demo_registry


@pytest.fixture(scope="session")
def registry():
    return demo_registry()
