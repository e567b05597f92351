"""Quiesce, resume, hydrate, sleep and wake of a real process: the memory goes, the answers stay."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from reference_server import Served

from coldsnap.artifact.pack import open_pack

PAYLOAD = 4_000_000
"""About the size of the weights in memory, at least."""


@pytest.fixture(autouse=True)
def serving_again(served: Served) -> Iterator[None]:
    """A test that fails half-way must not fail the others."""
    yield
    if served.ask("/health")[0] != 200:
        served.ask("/wake_up", {}, control=True)
        served.ask("/coldsnap/hydrate", {"provider": "recovery"}, control=True)


def quiesce(served: Served, folder: Path, **more: Any) -> Any:
    status, value = served.ask("/coldsnap/quiesce", {"dir": str(folder), **more}, control=True)
    assert status == 200, value
    return value


def wait_running(served: Served) -> None:
    while served.ask("/coldsnap/state", control=True)[1]["requests"] == 0:
        time.sleep(0.002)


def hydrate(served: Served, folder: Path, **more: Any) -> tuple[int, Any]:
    body = {
        "payload": str(folder / "payload.pack"),
        "index": str(folder / "payload.index.json"),
        **more,
    }
    return served.ask("/coldsnap/hydrate", body, control=True)


def test_round_trip_is_the_same_bit_for_bit(served: Served, tmp_path: Path) -> None:
    before = served.complete(max_tokens=40)
    freed = quiesce(served, tmp_path)
    assert freed["state"] == "quiesced"
    assert freed["payload_bytes"] > PAYLOAD
    assert freed["kv_bytes"] > 0
    assert served.ask("/health")[0] == 503
    status, value = served.ask("/v1/completions", {"prompt": "a"})
    assert status == 503
    assert value["error"]["code"] == "quiesced"
    assert value["error"]["message"]
    assert hydrate(served, tmp_path)[0] == 200
    assert served.complete(max_tokens=40) == before


def test_all_of_it_can_be_asked_twice(served: Served, tmp_path: Path) -> None:
    before = served.complete()
    first, second = quiesce(served, tmp_path), quiesce(served, tmp_path)
    assert second == {**first, "already": True}
    for _ in range(2):
        status, value = hydrate(served, tmp_path)
        assert (status, value["state"]) == (200, "serving")
    resume = {"dir": str(tmp_path)}
    assert served.ask("/coldsnap/resume", resume, control=True)[0] == 200
    assert served.complete() == before


def test_the_memory_is_given_back(served: Served, tmp_path: Path) -> None:
    served.complete(max_tokens=100, ignore_eos=True)
    before = served.resident()
    freed = quiesce(served, tmp_path)
    regions = ("10000000", "18000000")
    lines = Path(f"/proc/{served.process.pid}/smaps").read_text().splitlines()
    inside = False
    resident = 0
    for line in lines:
        if "-" in line.split()[0]:
            inside = line.startswith(regions) and len(line.split("-")[0]) == 12
        elif inside and line.startswith("Rss:"):
            resident += int(line.split()[1])
    assert resident == 0
    assert before - served.resident() > freed["payload_bytes"] * 0.5
    hydrate(served, tmp_path)


def test_pack_is_a_pack_of_the_weights(served: Served, tmp_path: Path) -> None:
    freed = quiesce(served, tmp_path)
    hydrate(served, tmp_path)
    with open_pack(tmp_path / "payload.pack", tmp_path / "payload.index.json") as pack:
        assert pack.verify() == freed["payload_bytes"]
        assert pack.index.body.sha256 == freed["payload_sha256"]
        assert "model.layers.0.self_attn.qkv_proj.weight" in [e.id for e in pack.extents]
        plan = served.ask("/coldsnap/state", control=True)[1]["plan_digest"]
        assert pack.index.attributes["plan"] == plan


@pytest.mark.parametrize("verified", [True, False])
def test_mapped_pack_answers_the_same(served: Served, tmp_path: Path, verified: bool) -> None:
    before = served.complete()
    quiesce(served, tmp_path)
    assert hydrate(served, tmp_path, method="mmap", verified=verified)[0] == 200
    assert served.complete() == before
    # A second capture, from mapped weights, must leave no mapping of the pack behind.
    quiesce(served, tmp_path)
    maps = Path(f"/proc/{served.process.pid}/maps").read_text()
    assert "payload.pack" not in maps
    assert hydrate(served, tmp_path)[0] == 200
    assert served.complete() == before


def test_flipped_byte_is_refused_by_name(served: Served, tmp_path: Path) -> None:
    before = served.complete()
    quiesce(served, tmp_path)
    with open_pack(tmp_path / "payload.pack", tmp_path / "payload.index.json") as pack:
        extent = pack.index.find("model.layers.2.mlp.down_proj.weight")
    path = tmp_path / "payload.pack"
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    data[extent.offset + 1000] ^= 1
    path.write_bytes(data)
    for more in ({}, {"method": "mmap"}):
        status, value = hydrate(served, tmp_path, **more)
        assert status == 500
        assert extent.id in value["error"]["message"]
        assert value["error"]["code"] == "pack.chunk-differs"
        assert served.ask("/health")[0] == 503
    data[extent.offset + 1000] ^= 1
    path.write_bytes(data)
    assert hydrate(served, tmp_path)[0] == 200
    assert served.complete() == before


@pytest.mark.parametrize("damage", ["truncated", "gone", "no-index", "other-index"])
def test_damaged_payload_leaves_it_not_serving(served: Served, tmp_path: Path, damage: str) -> None:
    quiesce(served, tmp_path)
    pack, index = tmp_path / "payload.pack", tmp_path / "payload.index.json"
    kept = pack.read_bytes(), index.read_bytes()
    for path in (pack, index):
        path.chmod(0o600)
    if damage == "truncated":
        pack.write_bytes(kept[0][:-4096])
    elif damage == "gone":
        pack.unlink()
    elif damage == "no-index":
        index.unlink()
    else:
        index.write_bytes(kept[1].replace(b'"plan"', b'"plum"'))
    status, value = hydrate(served, tmp_path)
    assert status == 500
    assert value["error"]["message"]
    assert served.ask("/health")[0] == 503
    pack.write_bytes(kept[0])
    index.write_bytes(kept[1])
    assert hydrate(served, tmp_path)[0] == 200


def test_pack_of_another_engine_is_refused(
    served: Served, fresh: Callable[..., Served], tmp_path: Path
) -> None:
    other = fresh()
    quiesce(other, tmp_path)
    own = tmp_path / "own"
    own.mkdir()
    quiesce(served, own)
    status, value = hydrate(served, tmp_path)
    assert status == 500
    assert value["error"]["code"] in ("pack.index-differs", "payload.other-extents")
    assert hydrate(served, own)[0] == 200


@pytest.mark.parametrize("damage", ["gone", "no-index", "truncated", "flipped"])
def test_resume_takes_the_model_folder_when_the_pack_is_no_good(
    served: Served, tmp_path: Path, damage: str
) -> None:
    before = served.complete()
    quiesce(served, tmp_path)
    pack, index = tmp_path / "payload.pack", tmp_path / "payload.index.json"
    if damage == "gone":
        pack.unlink()
    elif damage == "no-index":
        index.unlink()
    elif damage == "truncated":
        os.truncate(pack, 4096)
    else:
        data = bytearray(pack.read_bytes())
        data[5000] ^= 1
        pack.chmod(0o600)
        pack.write_bytes(data)
    status, _ = served.ask("/coldsnap/resume", {"dir": str(tmp_path)}, control=True)
    assert status == 200
    assert served.complete() == before


def test_resume_refuses_a_model_folder_that_is_another_model(
    fresh: Callable[..., Served], model: Path, tmp_path: Path
) -> None:
    other = tmp_path / "model"
    shutil.copytree(model, other)
    engine = fresh(folder=other)
    quiesce(engine, tmp_path)
    (tmp_path / "payload.pack").unlink()
    weights = other / "model.safetensors"
    kept = weights.read_bytes()
    weights.chmod(0o600)
    weights.write_bytes(kept[:-4] + b"\0\0\0\0")
    status, value = engine.ask("/coldsnap/resume", {"dir": str(tmp_path)}, control=True)
    assert status == 500
    assert value["error"]["code"] == "payload.model-changed"
    assert engine.ask("/health")[0] == 503
    weights.write_bytes(kept)
    assert engine.ask("/coldsnap/resume", {"dir": str(tmp_path)}, control=True)[0] == 200


def test_quiesce_waits_for_what_runs(served: Served, tmp_path: Path) -> None:
    answers: list[Any] = []
    body = {"max_tokens": 400, "ignore_eos": True}
    client = threading.Thread(target=lambda: answers.append(served.complete("a", **body)))
    client.start()
    wait_running(served)
    quiesce(served, tmp_path)
    client.join()
    assert len(answers[0]["logprobs"]["tokens"]) == 400
    assert hydrate(served, tmp_path)[0] == 200


def test_drain_that_takes_too_long_leaves_it_serving(served: Served, tmp_path: Path) -> None:
    body = {"max_tokens": 800, "ignore_eos": True}
    client = threading.Thread(target=lambda: served.complete("a", **body))
    client.start()
    wait_running(served)
    request = {"dir": str(tmp_path), "drain_seconds": 0.0}
    status, value = served.ask("/coldsnap/quiesce", request, control=True)
    assert status == 500
    assert value["error"]["code"] == "engine.drain-timeout"
    assert served.ask("/health")[0] == 200
    client.join()


def test_pack_that_cannot_be_written_leaves_it_serving(served: Served, tmp_path: Path) -> None:
    before = served.complete()
    request = {"dir": str(tmp_path / "absent")}
    status, value = served.ask("/coldsnap/quiesce", request, control=True)
    assert status == 500
    assert value["error"]["message"]
    assert served.complete() == before


@pytest.mark.parametrize("level", [1, 2])
def test_sleep_and_wake(served: Served, level: int) -> None:
    before = served.complete()
    resident = served.resident()
    for _ in range(2):
        status, value = served.ask(f"/sleep?level={level}", {}, control=True)
        assert (status, value["is_sleeping"]) == (200, True)
    assert served.ask("/is_sleeping")[1] == {"is_sleeping": True}
    assert served.ask("/v1/completions", {"prompt": "a"})[0] == 503
    if level == 2:
        assert resident - served.resident() > PAYLOAD
    for _ in range(2):
        status, value = served.ask("/wake_up", {}, control=True)
        assert (status, value["is_sleeping"]) == (200, False)
    assert served.complete() == before


def test_wrong_order_is_refused(served: Served, tmp_path: Path) -> None:
    quiesce(served, tmp_path)
    assert served.ask("/sleep", {}, control=True)[0] == 409
    assert served.ask("/wake_up", {}, control=True)[0] == 409
    assert hydrate(served, tmp_path)[0] == 200
    served.ask("/sleep", {}, control=True)
    assert served.ask("/coldsnap/quiesce", {"dir": str(tmp_path)}, control=True)[0] == 409
    served.ask("/wake_up", {}, control=True)
    assert served.ask("/health")[0] == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/coldsnap/quiesce", {}),
        ("/coldsnap/quiesce", {"dir": "relative"}),
        ("/coldsnap/quiesce", {"dir": "/tmp", "drain_seconds": "long"}),
        ("/coldsnap/hydrate", {"payload": "/x"}),
        ("/coldsnap/hydrate", {"payload": "/x", "index": "/y", "provider": "magic"}),
        ("/coldsnap/resume", []),
        ("/sleep", {"level": 3}),
    ],
)
def test_bad_control_request_is_told_so(served: Served, path: str, body: Any) -> None:
    status, value = served.ask(path, body, control=True)
    assert status == 400
    assert value["error"]["message"]
    assert served.ask("/health")[0] == 200
