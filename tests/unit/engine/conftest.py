"""Makes `engine_world` importable by the tests and by the child processes that they kill."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from engine_world import World  # noqa: E402


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
