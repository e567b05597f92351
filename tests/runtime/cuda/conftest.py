"""A fake driver, built once, and small processes for it to speak of."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "fakes"))
from cuda_driver import FakeDriver, build_library, make_driver


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("fake"))


@pytest.fixture
def driver(
    fake_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeDriver]:
    fake = make_driver(tmp_path / "driver", fake_library, monkeypatch)
    yield fake
    fake.end()
