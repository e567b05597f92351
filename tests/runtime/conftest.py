"""Running the runtime from the outside: a process, JSON in, JSON lines out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).parent / "driver.py"


@dataclass
class Answer:
    status: int
    lines: list[dict[str, Any]]
    stderr: str = ""

    @property
    def last(self) -> dict[str, Any]:
        return self.lines[-1]

    @property
    def result(self) -> dict[str, Any]:
        assert self.last.get("ok") is True, self.last
        assert self.status == 0
        return self.last["result"]

    @property
    def error(self) -> dict[str, Any]:
        assert self.last.get("ok") is False, self.last
        assert self.status == 1
        return self.last["error"]

    def messages(self, kind: str) -> list[str]:
        return [line["message"] for line in self.lines if line.get("event") == kind]


@dataclass
class Runtime:
    state: Path
    environment: dict[str, str] = field(default_factory=dict)

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, str(DRIVER), *words, "--state-dir", str(self.state)]

    def start(self, *words: str, request: Any = None, **options: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self.argv(*words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._env(),
            **options,
        )
        assert process.stdin is not None
        data = request if isinstance(request, bytes) else json.dumps(request or {}).encode()
        process.stdin.write(data)
        process.stdin.close()
        process.stdin = None
        return process

    def finish(self, process: subprocess.Popen[bytes], timeout: float = 30) -> Answer:
        out, err = process.communicate(timeout=timeout)
        assert b"Traceback" not in out + err, err.decode()
        lines = [json.loads(line) for line in out.splitlines()]
        return Answer(process.returncode, lines, err.decode())

    def call(self, *words: str, request: Any = None, timeout: float = 30, **options: Any) -> Answer:
        return self.finish(self.start(*words, request=request, **options), timeout)

    def _env(self) -> dict[str, str]:
        path = f"{ROOT / 'runtime'}:{ROOT}"
        return {**os.environ, "PYTHONPATH": path, **self.environment}


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    return Runtime(tmp_path / "state")
