"""plan pin: names become digests and commits, everything else stays to the byte."""

from __future__ import annotations

import importlib.util
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

_path = Path(__file__).parents[1] / "unit" / "artifact" / "conftest.py"
_spec = importlib.util.spec_from_file_location("artifact_conftest", _path)
captures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(captures)

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PLAN = """\
# keep this comment
coldsnap: plan/v1
name: pinned
engine: vllm
model:   {id: org/model, source: hf}   # and this one
steps:
  - uses: vllm.restore
    with: {artifact: "first"}
"""


class Hub(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = self.path.startswith("/api/models/org/model")
        body = json.dumps({"id": "org/model", "sha": COMMIT} if known else {}).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def hub(cli):
    server = HTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    cli.env["HF_ENDPOINT"] = f"http://127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def digest(cli, tmp_path) -> str:
    root = tmp_path / "store"
    made = captures.publish_one(tmp_path / "first", root, seed="one", tags=["first"])
    cli.env["COLDSNAP_STORE"] = f"oci-layout:{root}"
    (cli.project / "plan.yaml").write_text(PLAN)
    return made.manifest


def test_names_become_digests_and_commits(cli, hub, digest) -> None:
    assert "2 values not pinned" in cli("plan", "pin", "plan.yaml", "--check", code=1).out
    assert (cli.project / "plan.yaml").read_text() == PLAN
    done = cli("plan", "pin", "plan.yaml")
    assert f"model.revision: (nothing) -> {COMMIT}" in done.out
    assert f"steps[0].with.artifact: first -> {digest}" in done.out
    expected = PLAN.replace('"first"', f'"{digest}"').replace(
        "source: hf}", f'source: hf, revision: "{COMMIT}"}}'
    )
    written = (cli.project / "plan.yaml").read_text()
    assert written.replace(f"revision: {COMMIT}", f'revision: "{COMMIT}"') == expected
    assert cli("plan", "pin", "plan.yaml", "--check").out == "all is pinned\n"


def test_what_the_hub_does_not_know(cli, hub, digest) -> None:
    (cli.project / "plan.yaml").write_text(PLAN.replace("org/model", "org/other"))
    done = cli("plan", "pin", "plan.yaml", code=1)
    assert "error[hub.failed]" in done.err
    assert "org/other" in done.err


def test_what_the_store_does_not_have(cli, hub, digest) -> None:
    text = PLAN.replace('"first"', "other")
    (cli.project / "plan.yaml").write_text(text)
    assert "error[store.no-such-artifact]" in cli("plan", "pin", "plan.yaml", code=1).err
    assert (cli.project / "plan.yaml").read_text() == text


def test_expressions_are_left_alone(cli, digest) -> None:
    text = PLAN.replace('"first"', '"{{ vars.a }}"').replace(
        "source: hf", 'source: hf, revision: "{{ vars.r }}"'
    )
    (cli.project / "plan.yaml").write_text(text)
    assert cli("plan", "pin", "plan.yaml").out == "all is pinned\n"
    assert (cli.project / "plan.yaml").read_text() == text
