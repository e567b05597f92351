"""A project as a user has it: plans, an inventory, a state folder; the real command line on it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Project:
    folder: Path
    model: Path
    host_vars: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.state = self.folder / "state"
        self.port = free_port()
        host_vars = {"state_dir": str(self.state), **self.host_vars}
        inventory = {
            "coldsnap": "inventory/v1",
            "hosts": {"local": {"connector": "@local", "vars": host_vars}},
        }
        self.inventory = self.folder / "inventory.yaml"
        self.inventory.write_text(json.dumps(inventory))

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "coldsnap.cli", *args]

    def environment(self, **extra: str) -> dict[str, str]:
        return {**os.environ, "NO_COLOR": "1", **extra}

    def run(self, *args: str, timeout: float = 240, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*args),
            cwd=self.folder,
            env=self.environment(**env),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def start(self, *args: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*args),
            cwd=self.folder,
            env=self.environment(**env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def plan(self, verb: str, plan: str, *args: str, **variables: Any) -> list[str]:
        values = {"model": str(self.model), "port": self.port, **variables}
        flags = [part for k, v in values.items() for part in ("--var", f"{k}={v}")]
        path = plan if plan.startswith("/") else str(ROOT / "plans" / plan)
        return ["plan", verb, path, "-i", str(self.inventory), *flags, *args]

    def apply(self, plan: str, *args: str, **variables: Any) -> subprocess.CompletedProcess[str]:
        return self.run(*self.plan("apply", plan, "--yes", *args, **variables))

    def diff(self, plan: str, *args: str, **variables: Any) -> subprocess.CompletedProcess[str]:
        return self.run(*self.plan("diff", plan, *args, **variables))

    def status(self) -> list[dict[str, Any]]:
        done = self.run("status", "-i", str(self.inventory), "--json")
        assert done.returncode == 0, done.stderr
        value = json.loads(done.stdout)
        units = value["units"] if isinstance(value, dict) else value
        return [unit for unit in units if unit["state"] not in {"stopped", "dead"}]

    def live(self) -> list[dict[str, Any]]:
        """The records as the target itself has them; no command line in between."""
        found = []
        for path in sorted(self.state.glob("units/*/*/unit.json")):
            record = json.loads(path.read_text())
            init = record.get("init")
            if init and record["state"] not in {"stopped", "dead"} and alive(init["pid"]):
                found.append(record)
        return found

    def output(self, step: str, name: str) -> Any:
        """An output of a step in the latest run."""
        journal = self.folder / ".coldsnap" / "runs" / "latest" / "journal.jsonl"
        rows = [json.loads(line) for line in journal.read_text().splitlines()]
        done = [
            row for row in rows if row.get("kind") == "step.done" and row["key"]["step"] == step
        ]
        return done[-1]["outputs"][name]

    def kill_units(self, number: int = signal.SIGKILL) -> None:
        for record in self.live():
            with contextlib.suppress(ProcessLookupError):
                os.kill(record["init"]["pid"], number)
        deadline = time.monotonic() + 10
        while self.live() and time.monotonic() < deadline:
            time.sleep(0.05)

    def clean(self) -> None:
        """End every unit and job of this project, whatever state it is in."""
        self.kill_units()
        for path in self.state.glob("jobs/*/job.json"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                pid = int(json.loads(path.read_text())["pid"])
                if str(self.state) in Path(f"/proc/{pid}/cmdline").read_text():
                    os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def complete(port: int, prompt: str = "Once upon a time", tokens: int = 12, **more: Any) -> Any:
    """One completion with log-probabilities: (text, tokens, log-probabilities)."""
    body = {
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "logprobs": 1,
        **more,
    }
    answer = post(port, "/v1/completions", body)
    choice = answer["choices"][0]
    return choice["text"], choice["logprobs"]["tokens"], choice["logprobs"]["token_logprobs"]


def post(port: int, path: str, body: Any, timeout: float = 60) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.loads(answer.read())


def serves(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def until_step(run: subprocess.Popen[str], step: str) -> None:
    """Until it says that `step` has begun; the rest of what it says is read elsewhere."""
    assert run.stderr is not None
    for line in run.stderr:
        if '"step-started"' in line and step in line:
            return
    raise AssertionError(f"{step} never began")
