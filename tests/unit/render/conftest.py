"""Golden files: compared, or written with COLDSNAP_GOLDEN=write."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def golden() -> Callable[[Path, str], None]:
    def check(path: Path, text: str) -> None:
        if os.environ.get("COLDSNAP_GOLDEN") == "write":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing; COLDSNAP_GOLDEN=write makes it"
        assert text == path.read_text()

    return check
