"""A template on a host with GPUs, by a fake NVML: what it needs there, and where it is placed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from unit_workplace import Workplace
from waiting import wait_for

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.http_calls import HttpCall
from coldsnap_runtime.template_release import start_restored
from coldsnap_runtime.timing import Timing
from coldsnap_runtime.unit_template import park

sys.path.insert(0, str(Path(__file__).parents[2] / "fakes"))
from cuda_driver import FakeDriver, build_library, make_driver

pytestmark = pytest.mark.criu

RUNTIME = Path(__file__).parents[3] / "runtime"
GIB = 1 << 30
ENGINE = """
import http.server, json, os

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"gpus": os.environ["CUDA_VISIBLE_DEVICES"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake = make_driver(tmp_path / "driver", build_library(tmp_path), monkeypatch)
    fake.gpu(0)
    fake.gpu(1)
    return fake


@pytest.fixture
def captured(workplace: Workplace, driver: FakeDriver) -> dict[str, Any]:
    """A unit on GPU 0 whose engine wants 80 GiB; it does not run any more."""
    del driver
    script = workplace.script("gpu.py", ENGINE)
    argv = [sys.executable, "-S", "-m", "coldsnap_inside_template", "--", str(script)]
    env = {"PYTHONPATH": str(RUNTIME), "CUDA_VISIBLE_DEVICES": "0"}
    record = workplace.launch(script, argv=argv, env=env, template=True)
    park(record, workplace.context, workplace.installation, Timing())
    wait_for(lambda: workplace.answers(record), "the engine to answer")
    assert workplace.ask(record) == {"gpus": "0"}
    control = workplace.store.paths(record.unit, record.generation).control
    (control / "device-memory.json").write_text(json.dumps({"bytes": 80 * GIB}))
    result = workplace.checkpoint(record)
    workplace.stop(record)
    return result


def test_what_it_needs_is_recorded(captured: dict[str, Any]) -> None:
    template = captured["template"]
    assert captured["cuda"] is None
    assert template["driver_libraries"] == []
    cuda = template["cuda"]
    assert (cuda["snapshot_driver"], cuda["engine_bytes"]) == ("n580", 80 * GIB)
    assert [gpu["name"] for gpu in cuda["gpus"]] == ["NVIDIA H200"]


@pytest.mark.parametrize(("devices", "seen"), [((1,), "1"), ((), "0")])
def test_the_engine_sees_the_gpus_of_its_new_place(
    workplace: Workplace, captured: dict[str, Any], devices: tuple[int, ...], seen: str
) -> None:
    restored = workplace.restore(captured["capture_dir"], devices=devices)
    assert not workplace.answers(restored)
    ready = HttpCall("GET", "/")
    awaited = start_restored(workplace.store, restored, ready, "auto", Timing())
    assert awaited.retry_seconds > 60
    wait_for(lambda: workplace.answers(restored), "the engine to answer")
    assert workplace.ask(restored) == {"gpus": seen}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"free": 10 * GIB}, "gpu.memory-short"),
        ({"name": "NVIDIA L4"}, "gpu.model-differs"),
        ({"major": 8}, "gpu.capability-differs"),
    ],
)
def test_a_gpu_that_does_not_do_is_refused_before_anything_is_started(
    workplace: Workplace,
    driver: FakeDriver,
    captured: dict[str, Any],
    change: dict[str, Any],
    code: str,
) -> None:
    driver.gpu(1, **change)
    before = len(workplace.store.generations("u0"))
    with pytest.raises(ColdSnapError) as caught:
        workplace.restore(captured["capture_dir"], devices=(1,))
    assert caught.value.code == code
    assert len(workplace.store.generations("u0")) == before
