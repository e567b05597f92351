"""Driver n580 from the outside: a template parks, is dumped, goes on, comes back, is released."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runtime_target import ROOT, Answer, Host, call

pytestmark = pytest.mark.criu

ENGINE = Path(__file__).parent / "template_engine.py"
READY = call("GET", "/health", retry_seconds=20.0)
IMPORTS = ("--import", "decimal", "--import", "no_such_module")


def launch(host: Host, *own: str, modules: Path = ENGINE.parent, **env: str) -> Answer:
    request = host.launch_request()
    request["launch"] |= {
        "argv": [sys.executable, "-m", "coldsnap_inside_template", *own, "--", str(ENGINE), "8000"],
        "env": {"PYTHONPATH": f"{modules}:{ROOT}", **env},
        "inside": ["coldsnap_inside_template"],
        "template": True,
    }
    return host.unit("launch", **request)


def captured(host: Host, *own: str) -> tuple[str, list[Any], dict[str, Any]]:
    launch(host, *own).ok()
    answers = host.accept().result["answers"]
    host.quiesce().ok()
    made = host.checkpoint(driver="n580").result
    return host.publish(made), answers, made


@pytest.mark.parametrize(("own", "mode"), [(IMPORTS, "imports"), ((), "exec")])
def test_there_and_back(host: Host, own: tuple[str, ...], mode: str) -> None:
    artifact, before, made = captured(host, *own)
    template = made["template"]
    assert (template["snapshot_driver"], template["mode"]) == ("n580", mode)
    assert template["plan"] == {"workers": [{"kv": 42}]}
    assert set(template["failed"]) == ({"no_such_module"} if own else set())
    assert made["cuda"] is None
    assert made["sizes"]["payload"] > 0
    assert host.states() == {1: "serving"}
    first = host.seen()
    assert first["preloaded"] is bool(own)
    assert first["argv"][1:] == ["8000"]
    assert first["handed"]["COLDSNAP_PAYLOAD"] is None

    restored = host.restore(artifact).result
    assert host.states() == {1: "serving", 2: "restored"}
    log = host.state / "units" / "u0" / "2" / "control" / "engine.log"
    assert "engine starts" not in log.read_text(), "the template waits"
    names = [span["name"] for span in restored["timing"]["spans"]]
    assert "criu-restore" in names

    hydrated = host.hydrate(generation=2).result
    assert hydrated["provider"]["used"] == "native"
    assert "engine-start" in [span["name"] for span in hydrated["timing"]["spans"]]
    second = host.seen(generation=2)
    assert second["preloaded"] is bool(own)
    assert second["seed"] == "seed of the payload"
    assert second["pid"] == first["pid"]
    assert second["plan"] == {"workers": [{"kv": 42}]}
    assert second["handed"]["COLDSNAP_PROVIDER"] == "auto"
    assert first["seed"] != second["seed"]
    with pytest.raises(AssertionError, match="differs"):
        host.accept(expected=before, generation=2).ok()


def test_the_image_is_that_of_the_parked_process(host: Host) -> None:
    """The engine's own memory, made after the release, is not in it."""
    launch(host).ok()
    host.quiesce().ok()
    folder = Path(host.checkpoint(driver="n580").result["capture_dir"])
    pages = b"".join(path.read_bytes() for path in folder.glob("images/pages-*.img"))
    assert b"coldsnap_inside_template" in pages
    assert b"seed of the payload" not in pages
    pack = next(folder.glob("model-payloads/sha256/*.pack"))
    assert b"seed of the payload" in pack.read_bytes()


def test_a_second_capture_of_the_same_launch(host: Host) -> None:
    captured(host)
    host.quiesce().ok()
    again = host.checkpoint("c2", driver="n580").result
    assert again["sizes"]["payload"] > 0
    assert host.states() == {1: "serving"}


def test_a_restored_one_has_no_template_to_capture(host: Host) -> None:
    artifact, _, _ = captured(host)
    host.restore(artifact).ok()
    host.hydrate(generation=2).ok()
    accepted = host.accept(generation=2).result
    assert accepted["answers"]
    host.quiesce(generation=2).ok()
    answer = host.checkpoint("c2", generation=2, driver="n580")
    assert answer.error["code"] == "checkpoint.no-template"
    assert host.states()[2] == "serving", "it serves again"


def test_an_engine_that_ends_before_it_parks(host: Host) -> None:
    answer = launch(host, "--no-such-option", "x")
    assert answer.error["code"] == "engine.died"
    assert "unknown option --no-such-option" in json.dumps(answer.error["details"])
    assert host.states() == {1: "stopped"}


@pytest.fixture
def device() -> Iterator[Path]:
    """A device file of the name that NVIDIA's have; it is /dev/null."""
    path = Path(f"/dev/nvidia-test-{os.getpid()}")
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        path.open("rb").close()
    except OSError as error:
        path.unlink(missing_ok=True)
        pytest.skip(f"no device file can be made here: {error}")
    yield path
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below /tmp: a unit has its own."""
    with tempfile.TemporaryDirectory(prefix="coldsnap-modules-", dir="/var/tmp") as made:
        yield Path(made)


def write_opener(device: Path, folder: Path, name: str) -> None:
    text = f"import builtins\nbuiltins.kept = open({str(device)!r})\n"
    (folder / f"{name}.py").write_text(text)


def test_imports_that_open_a_device_are_left_to_the_engine(
    host: Host, device: Path, folder: Path
) -> None:
    write_opener(device, folder, "opens_a_device")
    launch(host, "--import", "opens_a_device", modules=folder).ok()
    parked = host.state / "units" / "u0" / "1" / "control" / "template" / "parked.json"
    told = json.loads(parked.read_text())
    assert told["mode"] == "exec"
    assert told["reason"] == f"its imports open {device}"
    assert host.seen()["preloaded"] is False


def test_a_template_that_holds_a_device_is_refused(host: Host, device: Path, folder: Path) -> None:
    write_opener(device, folder, "sitecustomize")
    answer = launch(host, modules=folder)
    assert answer.error["code"] == "template.not-context-free"
    assert str(device) in answer.error["message"]
    assert host.states() == {1: "stopped"}
