"""The real entry point in a process of its own, in an empty project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Finished:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Cli:
    """Runs ``coldsnap``; HOME and the project are folders of the test."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.project.mkdir()
        self.home = folder / "home"
        self.home.mkdir()
        keep = ("PATH", "LANG", "COLDSNAP_CRIU", "VIRTUAL_ENV")
        self.env = {name: os.environ[name] for name in keep if name in os.environ}
        self.env |= {"HOME": str(self.home), "TZ": "UTC", "COLUMNS": "100"}

    def argv(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "coldsnap.cli", *arguments]

    def __call__(
        self,
        *arguments: str,
        stdin: str | None = None,
        env: dict[str, str] | None = None,
        code: int | None = 0,
        timeout: float = 120,
    ) -> Finished:
        done = subprocess.run(
            self.argv(*arguments),
            cwd=self.project,
            env=self.env | (env or {}),
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        finished = Finished(done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stdout + done.stderr, finished
        if code is not None:
            assert done.returncode == code, finished
        return finished


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compare with tests/cli/golden, or write it with COLDSNAP_GOLDEN=write."""
    folder = Path(__file__).parent / "golden"

    def check(name: str, text: str) -> None:
        path = folder / name
        if os.environ.get("COLDSNAP_GOLDEN") == "write":
            folder.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing; COLDSNAP_GOLDEN=write makes it"
        assert text == path.read_text()

    return check
