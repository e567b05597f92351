"""The native programs, built here: as they ship, and under the sanitizers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from native_build import build_native


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = build_native(tmp_path_factory.mktemp("native"))
    return build_native(folder, "coldsnap-portmap-sanitized")


@pytest.fixture(scope="session")
def build_target(programs: Path) -> Callable[[str], None]:
    """Builds a target that is not built by default."""

    def build(target: str) -> None:
        build_native(programs, target)

    return build


@pytest.fixture(params=["coldsnap-portmap", "coldsnap-portmap-sanitized"])
def portmap_program(request: pytest.FixtureRequest, programs: Path) -> Path:
    return programs / str(request.param)
