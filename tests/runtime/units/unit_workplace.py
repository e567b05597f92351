"""A state folder with a runtime installation in it, and small engines to run there."""

from __future__ import annotations

import http.client
import json
import os
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from waiting import wait_for

from coldsnap_runtime.context import Context
from coldsnap_runtime.installation import Installation
from coldsnap_runtime.namespaces import dial
from coldsnap_runtime.timing import Timing
from coldsnap_runtime.unit_checkpoint import checkpoint
from coldsnap_runtime.unit_expose import expose
from coldsnap_runtime.unit_launch import launch
from coldsnap_runtime.unit_record import UnitRecord, UnitStore
from coldsnap_runtime.unit_requests import (
    CheckpointRequest,
    GenerationRequest,
    LaunchRequest,
    RestoreRequest,
)
from coldsnap_runtime.unit_restore import restore
from coldsnap_runtime.unit_stop import stop

DIGEST = "sha256:" + "0" * 64

COUNTER = """
import hashlib, http.server, json, os, sys

state = {"n": 0, "blob": os.urandom(1 << 20), "names": {str(i): i for i in range(20000)}}

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        state["n"] += 1
        answer = {"n": state["n"], "pid": os.getpid(),
                  "sha": hashlib.sha256(state["blob"]).hexdigest(), "names": len(state["names"])}
        body = json.dumps(answer).encode()
        print("request", state["n"], flush=True)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass

print("up", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
"""


@dataclass
class Workplace:
    state_dir: Path
    installation: Installation
    events: list[dict[str, Any]] = field(default_factory=list)
    quiesced_state: str = "quiesced"
    context: Context = field(init=False)

    @property
    def store(self) -> UnitStore:
        return UnitStore(self.state_dir)

    def __post_init__(self) -> None:
        self.context = Context(str(self.state_dir), "", self.events.append)

    def script(self, name: str, text: str) -> Path:
        path = self.state_dir.parent / "engines" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def launch(self, script: Path, unit: str = "u0", **changes: Any) -> UnitRecord:
        spec = {
            "argv": [sys.executable, "-S", str(script)],
            "env": {},
            "mounts": [{"source": str(script.parent), "target": str(script.parent)}],
            "ports": [{"name": "http", "inner": 8000, "host": "127.0.0.1", "port": 19200}],
            "shm": 64 << 20,
        }
        value = {"unit": unit, "run": "r", "engine": "test", "launch": spec | changes}
        value["launch_sha256"] = DIGEST
        return launch(LaunchRequest.from_json(value), self.context, self.installation, Timing())

    def serve(self, script: Path, unit: str = "u0", **changes: Any) -> UnitRecord:
        """Launch and wait until it answers."""
        record = self.launch(script, unit, **changes)
        wait_for(lambda: self.answers(record), "the engine to answer")
        return self.store.update(record, state="serving")

    def answers(self, record: UnitRecord) -> bool:
        try:
            self.ask(record)
        except OSError:
            return False
        return True

    def ask(self, record: UnitRecord, path: str = "/", port: int = 8000) -> Any:
        assert record.init is not None
        return get(dial(record.init.pid, port, 5.0), path)

    def checkpoint(
        self, record: UnitRecord, capture_id: str = "c1", **changes: Any
    ) -> dict[str, Any]:
        quiesced = self.store.update(record, state=self.quiesced_state)

        def resume() -> None:
            if self.store.load(record.unit, record.generation).is_live:
                self.store.update(quiesced, state="serving")

        request = CheckpointRequest(
            record.unit, "r", capture_id, generation=record.generation, **changes
        )
        return checkpoint(request, self.context, self.installation, Timing(), resume)

    def restore(
        self, image: str | Path, unit: str = "u0", timing: Timing | None = None, **changes: Any
    ) -> UnitRecord:
        request = RestoreRequest(unit, "r", Path(image), DIGEST, **changes)
        return restore(request, self.context, self.installation, timing or Timing())

    def expose(self, record: UnitRecord) -> dict[str, Any]:
        request = GenerationRequest(record.unit, "r", record.generation)
        return expose(request, self.context, self.installation, Timing())

    def stop(self, record: UnitRecord, grace: float = 0.0) -> dict[str, Any]:
        request = GenerationRequest(record.unit, "r", record.generation, grace)
        return stop(request, self.context, Timing())

    def stop_all(self) -> None:
        for unit in self.store.units():
            for record in self.store.generations(unit):
                self.stop(record)

    def log(self, record: UnitRecord) -> str:
        return self.store.paths(record.unit, record.generation).engine_log.read_text()


def counter(port: int = 8000) -> str:
    return COUNTER.replace("PORT", str(port))


def get(connection: Any, path: str = "/") -> Any:
    client = http.client.HTTPConnection("127.0.0.1", timeout=10)
    client.sock = connection
    client.request("GET", path, headers={"Connection": "close"})
    with client.getresponse() as response:
        body = response.read()
    client.close()
    return json.loads(body)


def get_from_host(port: int, path: str = "/") -> Any:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        client.request("GET", path, headers={"Connection": "close"})
        return json.loads(client.getresponse().read())
    finally:
        client.close()


def find_criu() -> Path:
    """COLDSNAP_TEST_CRIU (a bundle's folder or a command), else what the product would take."""
    given = os.environ.get("COLDSNAP_TEST_CRIU")
    if not given:
        from coldsnap.store.criu import find_criu as find  # noqa: PLC0415

        return find().command
    path = Path(given)
    return path / "criu" if path.is_dir() else path
