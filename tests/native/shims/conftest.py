"""The preloaded libraries, built here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def fake_nvml(programs: Path, build_target: Callable[[str], None]) -> Path:
    build_target("coldsnap_fake_nvml")
    return programs / "shims" / "libnvidia-ml.so.1"


@pytest.fixture
def run() -> Callable[..., Any]:
    """Run code in a Python process of its own; its last line of stdout as JSON."""

    def call(code: str, *preload: Path, code_is: int = 0, **environment: object) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={
                **os.environ,
                "LD_PRELOAD": ":".join(map(str, preload)),
                **{name: str(value) for name, value in environment.items()},
            },
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == code_is, f"{done.returncode}: {done.stderr}"
        return json.loads(done.stdout.splitlines()[-1]) if done.stdout else None

    return call
