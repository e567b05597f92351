"""A small model, and engines that serve it."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coldsnap_reference_engine.generate import make_model

sys.path.insert(0, str(Path(__file__).parent))

from reference_server import Served, start

# Regions are never unmapped, so every test that makes some in this process takes fresh addresses.
_ADDRESSES = itertools.count(0x2000_0000_0000, 1 << 40)


@pytest.fixture
def address() -> Callable[[], int]:
    return lambda: next(_ADDRESSES)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "small"
    make_model(folder, 4_000_000, 0, "BF16")
    return folder


@pytest.fixture(scope="module")
def served(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One tuned engine for a module; its tests leave it serving."""
    engine = start(model, tmp_path_factory.mktemp("engine"))
    yield engine
    engine.stop()


@pytest.fixture
def fresh(model: Path, tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Starts engines of the test's own; untuned unless asked, since that starts at once."""
    engines: list[Served] = []

    def make(*options: str, folder: Path = model, wait: bool = True) -> Served:
        engines.append(start(folder, tmp_path, *(options or ("--tune-seconds", "0")), wait=wait))
        return engines[-1]

    yield make
    for engine in engines:
        engine.process.kill()
        engine.process.wait()
