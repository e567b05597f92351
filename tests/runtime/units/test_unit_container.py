"""The same verbs for a unit that is a container."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from python_image import make_image
from unit_workplace import DIGEST, Workplace, counter, get_from_host
from waiting import wait_for

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.timing import Timing
from coldsnap_runtime.unit_capture import Capture
from coldsnap_runtime.unit_requests import RestoreRequest
from coldsnap_runtime.unit_restore import Restored, restore_by_ladder

pytestmark = [pytest.mark.criu, pytest.mark.docker]

INSIDE = """
import multiprocessing.shared_memory as shm, os, pathlib, tempfile
pathlib.Path("/root/written").mkdir()
pathlib.Path("/root/written/note").write_text("kept")
held = open("/root/written/note")
scratch = tempfile.TemporaryFile()
scratch.write(b"scratch")
segment = shm.SharedMemory(create=True, size=1 << 20)
segment.buf[:5] = b"hello"
def extra():
    scratch.seek(0)
    return {"note": held.read() or pathlib.Path("/root/written/note").read_text(),
            "scratch": scratch.read().decode(), "shm": bytes(segment.buf[:5]).decode(),
            "host": os.path.exists("/work"), "root": os.getuid()}
"""


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_image(tmp_path_factory.mktemp("image"))


def contained(image: str, **more: Any) -> dict[str, Any]:
    return {"runtime": "container", "image": image, **more}


def serve(workplace: Workplace, image: str, text: str = "", **more: Any) -> Any:
    body = counter().replace('"names": len(', '**extra(), "names": len(') if text else counter()
    script = workplace.script("engine.py", text + body)
    argv = ["/usr/bin/python3", "-S", str(script)]
    return workplace.serve(script, argv=argv, **contained(image, **more))


def containers() -> str:
    done = subprocess.run(
        ["docker", "ps", "-a", "--filter", "label=coldsnap.unit", "--format", "{{.Names}}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_container_is_captured_and_restored_many_times(workplace: Workplace, image: str) -> None:
    port = {"name": "http", "inner": 8000, "host": "127.0.0.1", "port": 19240}
    first = serve(workplace, image, INSIDE, ports=[port])
    before = workplace.ask(first)
    assert before["note"] == "kept"
    assert before["host"] is False, "it sees its image, not the host"
    captured = workplace.checkpoint(first)
    assert workplace.ask(first)["n"] == before["n"] + 1
    workplace.stop(first, grace=5)

    twins = [workplace.restore(captured["capture_dir"]) for _ in range(2)]
    for twin in twins:
        assert workplace.ask(twin) == before | {"n": before["n"] + 1}
    workplace.expose(twins[0])
    assert get_from_host(19240)["n"] == before["n"] + 2

    again = workplace.restore(workplace.checkpoint(twins[1], "c2")["capture_dir"])
    assert workplace.ask(again)["n"] == before["n"] + 2
    assert workplace.store.load("u0").runtime == "container"
    for record in (*twins, again):
        workplace.stop(record)
    assert containers() == ""


def by_rung(workplace: Workplace, image: str, mode: str) -> Restored:
    """A restore that may only come by `mode`, every page compared before anything runs."""
    request = RestoreRequest(
        "u0", "r", Path(image), DIGEST, image_mode=mode, compare_pages=True, verify="digest"
    )
    done = restore_by_ladder(request, workplace.context, workplace.installation, Timing())
    assert (done.process_image["rung"], done.process_image["left"]) == (mode, [])
    assert done.process_image["pages_checked"] > 0
    return done


@pytest.mark.parametrize("mode", ["ext", "mmap"])
def test_the_pages_of_a_container_come_fast_too(
    workplace: Workplace, image: str, mode: str
) -> None:
    """Proven by a canary at the capture, then restored twice at once, and captured again."""
    first = serve(workplace, image, INSIDE, memory_guard=True)
    before = workplace.ask(first)
    captured = workplace.checkpoint(first)
    verdict = Capture.read(Path(captured["capture_dir"])).process_image["rungs"][mode]
    assert (verdict["proven"], verdict["differences"]) == (True, 0), verdict
    assert verdict["bytes"] > 1 << 20
    workplace.stop(first)

    twins = [by_rung(workplace, captured["capture_dir"], mode).record for _ in range(2)]
    for twin in twins:
        assert workplace.ask(twin) == before | {"n": before["n"] + 1}
    if mode == "mmap":
        with pytest.raises(ColdSnapError, match=r"checkpoint\.image-mapped"):
            workplace.checkpoint(twins[0], "c2")
        assert workplace.ask(twins[0])["n"] == before["n"] + 2, "it serves on"
    else:
        again = workplace.checkpoint(twins[0], "c2")
        assert workplace.ask(by_rung(workplace, again["capture_dir"], mode).record) == (
            before | {"n": before["n"] + 2}
        )
    workplace.stop_all()
    assert containers() == "", "neither units nor canaries stay behind"


def test_what_is_restored_counts_for_its_container(workplace: Workplace, image: str) -> None:
    first = serve(workplace, image)
    restored = workplace.restore(workplace.checkpoint(first)["capture_dir"])
    assert restored.init is not None
    own = Path(f"/proc/{restored.init.pid}/cgroup").read_text()
    assert restored.container in own
    children = Path(f"/proc/{restored.init.pid}/task/{restored.init.pid}/children").read_text()
    assert [Path(f"/proc/{pid}/cgroup").read_text() for pid in children.split()] == [own]


def test_another_image_under_the_same_name(workplace: Workplace, image: str) -> None:
    tag = "coldsnap/test-python:moving"
    subprocess.run(["docker", "tag", image, tag], check=True)
    captured = workplace.checkpoint(serve(workplace, tag))
    commit = ["docker", "import", "-", tag]
    subprocess.run(commit, input=b"\0" * 10240, check=True, capture_output=True)
    try:
        with pytest.raises(ColdSnapError, match=r"restore\.image-changed"):
            workplace.restore(captured["capture_dir"])
        assert len(workplace.store.generations("u0")) == 1
    finally:
        subprocess.run(["docker", "rmi", tag], check=True, capture_output=True)


def test_an_image_that_is_not_there(workplace: Workplace) -> None:
    script = workplace.script("engine.py", counter())
    with pytest.raises(ColdSnapError, match=r"container\.start-failed") as caught:
        workplace.launch(script, **contained("127.0.0.1:1/nowhere/image:1"))
    assert caught.value.details
    assert workplace.store.generations("u0") == []
    assert containers() == ""


def test_no_docker(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    script = workplace.script("engine.py", counter())
    with pytest.raises(ColdSnapError, match=r"container\.no-docker") as caught:
        workplace.launch(script, **contained("x:1"))
    assert "runtime: process" in caught.value.remedy


def test_an_engine_that_ends(workplace: Workplace, image: str) -> None:
    script = workplace.script("engine.py", "raise SystemExit(3)")
    argv = ["/usr/bin/python3", str(script)]
    workplace.launch(script, argv=argv, **contained(image))
    wait_for(lambda: workplace.store.load("u0").state == "dead", "the unit to be dead")
    status = (workplace.store.paths("u0", 1).work / "status").read_text()
    assert status.endswith("exited 3\n")
