"""The engine as a process that is asked over HTTP."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Served:
    process: subprocess.Popen[bytes]
    port: int
    control: int
    log: Path

    def ask(
        self, path: str, body: Any = None, *, control: bool = False, timeout: float = 60
    ) -> tuple[int, Any]:
        """(status, JSON or text); GET without a body."""
        port = self.control if control else self.port
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, _value(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _value(error.read())

    def complete(self, prompt: Any = "The capital of France is", **more: Any) -> Any:
        body = {"prompt": prompt, "max_tokens": 16, "temperature": 0, "logprobs": 1, **more}
        status, value = self.ask("/v1/completions", body)
        assert status == 200, value
        return value["choices"][0]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def resident(self) -> int:
        """Bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024


def _value(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode()


def start(model: Path, folder: Path, *options: str, wait: bool = True) -> Served:
    port, control = free_port(), free_port()
    log = folder / f"engine-{port}.log"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'runtime'}"}
    command = [sys.executable, "-m", "coldsnap_reference_engine", "serve", "--model", str(model)]
    ports = ["--port", str(port), "--control-port", str(control)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *ports, "--served-model-name", "small", *options],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    served = Served(process, port, control, log)
    if wait:
        wait_ready(served)
    return served


def wait_ready(served: Served, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert served.process.poll() is None, served.log.read_text()
        try:
            if served.ask("/health", timeout=5)[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"not ready: {served.log.read_text()}")
