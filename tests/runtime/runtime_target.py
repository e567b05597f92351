"""A target of the runtime, from the outside: a process, JSON in, JSON lines out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.store.criu import find_criu

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).parent / "driver.py"
ENGINE = Path(__file__).parent / "engine.py"
DIGEST = "sha256:" + "1" * 64
HOST_PORT = 19300


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

    def ok(self) -> None:
        assert self.result is not None

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


@dataclass
class Host(Runtime):
    """A target with a staged pack; `run` is the run id that its verbs carry.

    COLDSNAP_TEST_PYTHON names another interpreter for the pack.
    """

    pack: Path = Path()
    run: str = "run-1"
    engine: dict[str, Any] = field(default_factory=dict)

    def argv(self, *words: str) -> list[str]:
        python = os.environ.get("COLDSNAP_TEST_PYTHON", sys.executable)
        return [python, str(self.pack), *words, "--state-dir", str(self.state)]

    def _env(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        return {**kept, **self.environment}

    def unit(self, verb: str, job: str = "", timeout: float = 60, **request: Any) -> Answer:
        return self.finish(self.begin(verb, job, **request), timeout)

    def begin(self, verb: str, job: str = "", **request: Any) -> subprocess.Popen[bytes]:
        words = (f"unit.{verb}", *(("--job", job) if job else ()))
        return self.start(*words, request={"unit": "u0", "run": self.run, **request})

    def launch(self, job: str = "", **changes: Any) -> Answer:
        return self.unit("launch", job, **self.launch_request(**changes))

    def launch_request(self, argv: tuple[str, ...] = (), **changes: Any) -> dict[str, Any]:
        launch = {
            "argv": [sys.executable, "-S", str(ENGINE), "8000", *argv],
            "env": {"PYTHONPATH": str(ENGINE.parents[2])},
            "cwd": "/",
            "inside": [],
            "caches": [],
            "mounts": [
                {"source": str(ENGINE.parent), "target": str(ENGINE.parent), "read_only": True}
            ],
            "network": "private",
            "ports": [{"name": "http", "inner": 8000, "host": "127.0.0.1", "port": HOST_PORT}],
            "shm": 64 << 20,
            "runtime": "process",
            "image": "",
            "io_uring": "deny",
        }
        request = {
            "engine": "test",
            "model": {"id": "tiny"},
            "launch": launch,
            "ready": call("GET", "/health", retry_seconds=20.0, timeout=5.0),
            "launch_sha256": DIGEST,
            "request_sha256": DIGEST,
            "expose": False,
        }
        return {**request, **changes}

    def quiesce(self, hold: float = 60.0, **changes: Any) -> Answer:
        request = {
            "calls": [call("POST", "/quiesce", {"dir": "{dir}"})],
            "undo": [RESUME],
            "hold": hold,
        }
        return self.unit("quiesce", **{**request, **changes})

    def checkpoint(self, capture: str = "c1", **changes: Any) -> Answer:
        request = {"capture_id": capture, "request_sha256": DIGEST, "resume": [RESUME]}
        return self.unit("checkpoint", **{**request, **changes})

    def publish(self, captured: dict[str, Any], tag: str = "tiny") -> str:
        request = {
            "store": str(self.state / "store"),
            "capture_dir": captured["capture_dir"],
            "descriptor": descriptor(captured),
            "tags": [tag],
            "run": self.run,
            "unit": "u0",
        }
        return self.call("store.publish", request=request).result["manifest"]

    def restore(self, artifact: str, job: str = "", **changes: Any) -> Answer:
        request = {
            "store": str(self.state / "store"),
            "artifact": artifact,
            "ports": [],
            "mounts": [],
            "verify": "record",
            "expose": False,
        }
        return self.unit("restore", job, **{**request, **changes})

    def hydrate(self, **changes: Any) -> Answer:
        ready = call("GET", "/health", retry_seconds=10.0)
        return self.unit("hydrate", **{"calls": [HYDRATE], "ready": ready, **changes})

    def accept(self, expected: Any = None, **changes: Any) -> Answer:
        request = {"prompts": ["one", "two"], "tokens": 5, "expected": expected}
        return self.unit("accept", **{**request, **changes})

    def ask(self, method: str, path: str, body: Any = None, **fields: Any) -> Answer:
        return self.unit("call", calls=[call(method, path, body, **fields)])

    def seen(self, path: str = "/state", **changes: Any) -> Any:
        return self.unit("call", calls=[call("GET", path)], **changes).result["answers"][0]

    def generations(self) -> dict[int, dict[str, Any]]:
        rows = self.call("unit.status", request={"unit": "u0"}).result["units"]
        return {row["generation"]: row for row in rows}

    def states(self) -> dict[int, str]:
        return {number: row["state"] for number, row in self.generations().items()}

    def end(self) -> None:
        """Leave nothing behind, whoever holds the unit's lease by now."""
        for row in self.call("job", "list").result["jobs"]:
            self.call("job", "cancel", row["job"], "--grace", "1")
        held = self.call("lease", "show", request={"unit": "u0"}).result["lease"]
        self.run = held["run"] if held else self.run
        for number, state in self.states().items():
            if state not in ("stopped", "dead"):
                self.unit("stop", generation=number, grace=0).ok()

    def captured(self) -> tuple[str, list[Any]]:
        """(artifact, answers) of a unit that was launched, asked, captured and published."""
        self.launch().ok()
        answers = self.accept().result["answers"]
        self.quiesce().ok()
        return self.publish(self.checkpoint().result), answers


def criu_command() -> Path:
    """COLDSNAP_TEST_CRIU (a bundle's folder or a command), else what the product takes."""
    given = os.environ.get("COLDSNAP_TEST_CRIU")
    if not given:
        try:
            return find_criu().command
        except ColdSnapError as error:
            pytest.skip(f"no CRIU: {error.message}")
    path = Path(given)
    return path / "criu" if path.is_dir() else path


def call(method: str, path: str, body: Any = None, **fields: Any) -> dict[str, Any]:
    base = {"timeout": 10.0, "port": "http", "expect": {}, "retry_seconds": 0.0}
    return {"method": method, "path": path, "body": body, **base, **fields}


RESUME = call("POST", "/resume", {"payload": "{payload}", "index": "{index}"})
HYDRATE = call("POST", "/hydrate", {"payload": "{payload}", "index": "{index}"})


def descriptor(captured: dict[str, Any]) -> dict[str, Any]:
    model = {"id": "tiny", "revision": "", "source": "path"}
    unit = {"id": "u0", "index": 0, "host": "", "devices": [], "image": "", "image_digest": ""}
    unit |= {"command": ["x"], "environment": {}, "mounts": []}
    recovery = {"source": "safetensors", "model_id": "tiny", "revision": ""}
    recovery |= {"snapshot_driver": "criu"}
    return {
        "capture_id": captured["capture_id"],
        "request_sha256": DIGEST,
        "snapshot_driver": {
            "id": "criu",
            "abi": 1,
            "capture_boundary": "live-cpu-process-tree",
            "minimum_nvidia_driver_major": 0,
            "base_requirements": ["criu-process-tree"],
        },
        "requires": {"format": 1, "features": [{"id": "criu-process-tree"}]},
        "launch": {
            "engine": "test",
            "model": model,
            "units": [unit],
            "execution": {
                "workers": [{"id": "w0", "unit": "u0", "service": "serve", "process_slot": 0}],
                "groups": [{"id": "g", "kind": "all:world", "service": "serve", "members": ["w0"]}],
                "services": [{"id": "serve", "role": "serve", "workers": ["w0"]}],
            },
        },
        "compatibility": {"units": [{"unit": "u0", "architecture": os.uname().machine}]},
        "capsule": {"images": [], "objects": captured["objects"]},
        "weights": {
            "recovery": recovery,
            "model_payloads": {"objects": captured["payloads"]},
        },
        "acceptance": {"accepted": True, "expected": "x"},
        "extensions": {
            "sizes": captured["sizes"],
            "processes": captured["processes"],
            "mapped_files": captured["mapped_files"],
        },
    }


def watchdogs(host: Host) -> list[int]:
    """Processes whose stderr is a watchdog's log of this host."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            log = (folder / "fd" / "2").readlink()
        except OSError:
            continue
        if log.name == "hold.log" and log.is_relative_to(host.state):
            found.append(int(folder.name))
    return found


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
