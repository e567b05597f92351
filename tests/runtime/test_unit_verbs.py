"""Units by their verbs alone: a real pack, real namespaces, real CRIU, a small real engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request

import pytest
from runtime_target import DIGEST, RESUME, call
from waiting import wait_for

pytestmark = pytest.mark.criu

PLACED = {"name": "http", "inner": 8000, "host": "127.0.0.1", "port": 19301}


def test_from_cold_to_captured_to_restored(host):
    launched = host.launch().result
    assert launched["generation"] == 1
    assert host.states() == {1: "serving"}
    recorded = host.accept().result
    assert recorded["first_token_from"] == "launch"
    assert recorded["first_token_seconds"] > 0

    quiesced = host.quiesce().result
    assert quiesced["answers"] == [{"kv_bytes": 4096}]
    assert host.states() == {1: "quiesced"}
    captured = host.checkpoint().result
    assert host.states() == {1: "serving"}, "it serves on"
    assert captured["sizes"]["kv_discarded"] == 4096, "as the engine said"
    assert captured["sizes"]["residual"] == 0
    assert host.accept(recorded["answers"]).result["accepted"], "and answers as before"
    roles = {item["role"] for item in captured["objects"]}
    assert "criu-image" in roles
    (pack,) = [item for item in captured["payloads"] if item["path"].endswith(".pack")]
    assert pack["path"] == f"model-payloads/sha256/{pack['sha256'][7:]}.pack"

    manifest = host.publish(captured)
    request = {"store": str(host.state / "store"), "request_sha256": DIGEST}
    assert host.call("store.resolve", request=request).result["manifest"] == manifest

    restored = host.restore(manifest, ports=[PLACED])
    assert restored.result["generation"] == 2
    assert host.states() == {1: "serving", 2: "restored"}
    assert host.hydrate(generation=2).result["bytes"] == 4096
    again = host.accept(recorded["answers"], generation=2).result
    assert again["first_token_from"] == "restore"
    assert again["first_token_seconds"] < 30
    assert host.states() == {1: "serving", 2: "serving"}
    assert host.generations()[2]["artifact"] == manifest

    host.unit("stop", generation=1, grace=1).ok()
    exposed = host.unit("expose", generation=2).result
    assert exposed["ports"][0]["port"] == 19301
    with urllib.request.urlopen("http://127.0.0.1:19301/health", timeout=5) as answer:
        assert json.load(answer)["ok"]


def test_stopping_gives_back_the_image_folder_and_the_pin(host):
    manifest, _ = host.captured()
    host.restore(manifest).ok()
    pins = host.state / "store" / "pins"
    assert len(list(pins.glob("*.json"))) == 1
    assert len(list((host.state / "images" / "u0").iterdir())) == 2
    host.unit("stop", generation=2, grace=0).ok()
    assert not list(pins.glob("*.json"))
    assert not (host.state / "images" / "u0").exists()


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_artifact_is_refused_by_the_files_name(host, damage):
    manifest, _ = host.captured()
    request = {"store": str(host.state / "store"), "ref": manifest}
    objects = host.call("store.inspect", request=request).result["descriptor"]["capsule"]["objects"]
    (pages,) = [item for item in objects if item["path"] == "images/pages-1.img"]
    blob = host.state / "store" / "blobs" / "sha256" / pages["sha256"][7:]
    data = bytearray(blob.read_bytes())
    blob.chmod(0o600)
    if damage == "flip":
        data[len(data) // 2] ^= 1
        blob.write_bytes(data)
    elif damage == "cut":
        blob.write_bytes(data[: -(1 << 12)])
    else:
        blob.unlink()
    error = host.restore(manifest).error
    assert error["code"] == ("store.blob-missing" if damage == "remove" else "store.blob-differs")
    assert "images/pages-1.img" in error["message"]
    assert host.states() == {1: "serving"}, "nothing was begun, the old one serves"
    assert not list(host.state.glob("images/u0/*"))


def test_an_engine_that_never_becomes_ready_is_ended_with_its_log(host):
    ready = call("GET", "/nowhere", retry_seconds=1.0)
    error = host.launch(ready=ready).error
    assert error["code"] == "engine.not-ready"
    assert "HTTP 404" in error["message"]
    assert any("engine starts" in line for line in error["details"]), error["details"]
    assert set(host.states().values()) == {"stopped"}


def test_an_engine_that_dies_while_it_starts_is_seen_at_once(host):
    request = host.launch_request()
    code = "import sys; print('cannot load model: no such file', flush=True); sys.exit(7)"
    request["launch"]["argv"] = [sys.executable, "-c", code]
    begin = time.monotonic()
    error = host.unit("launch", **request).error
    assert time.monotonic() - begin < 10, "not the whole time-out"
    assert error["code"] == "engine.died"
    assert "exited with status 7" in error["message"]
    assert any("cannot load model" in line for line in error["details"])


def test_an_engine_that_dies_during_a_call_is_not_a_time_out(host):
    host.launch().ok()
    begin = time.monotonic()
    error = host.ask("GET", "/die?status=3", timeout=30.0).error
    assert time.monotonic() - begin < 20, "not the whole time-out"
    assert error["code"] == "engine.died"
    assert "exited with status 3" in error["message"]
    assert any("told to die" in line for line in error["details"])
    assert host.states() == {1: "dead"}
    assert host.quiesce().error["code"] == "unit.not-running"


@pytest.mark.parametrize(
    ("path", "fields", "part"),
    [
        ("/nowhere", {}, "HTTP 404"),
        ("/hang", {"timeout": 0.5}, "no answer within 0.5 s"),
        ("/drip", {"timeout": 0.5}, "no answer within 0.5 s"),
        ("/garbage", {}, "BadStatusLine"),
        ("/huge", {}, "longer than 16 MiB"),
        ("/health", {"expect": {"nested": {"a": 2}}}, "2 at /nested/a"),
        ("/health", {"expect": {"nested": {"c": 1}}}, "/nested/c"),
        ("/health", {"port": "8001"}, "nothing listens"),
    ],
)
def test_failed_calls_say_how(host, path, fields, part):
    host.launch().ok()
    error = host.ask("GET", path, **fields).error
    assert error["code"] == "engine.call-failed"
    assert part in error["message"]
    assert host.states() == {1: "serving"}


def test_calls_repeat_contain_and_fill_in(host):
    host.launch().ok()
    assert host.ask("GET", "/busy", retry_seconds=10.0).result["answers"] == [{"calls": 4}]
    assert host.ask("GET", "/health", expect={"nested": {"b": [2]}}).result
    body = {"a": ["{dir}/x"], "b": "{payload} {index}", "c": "{other}", "d": 1}
    (echo,) = host.ask("POST", "/echo", body).result["answers"]
    assert echo == {
        "a": ["/run/coldsnap/unit/x"],
        "b": "/run/coldsnap/unit/payload.pack /run/coldsnap/unit/payload.index.json",
        "c": "{other}",
        "d": 1,
    }
    assert host.ask("GET", "/health", port="grpc").error["code"] == "engine.unknown-port"


def test_wrong_states_are_refused_by_name(host):
    host.launch().ok()
    error = host.checkpoint().error
    assert error["code"] == "unit.wrong-state"
    assert "is serving; checkpoint needs it quiesced" in error["message"]
    assert host.unit("wake", calls=[]).result, "a unit that serves is awake: nothing to do"
    host.unit("sleep", calls=[call("POST", "/sleep")]).ok()
    assert host.states() == {1: "sleeping"}
    assert host.accept().error["code"] == "unit.wrong-state"
    assert host.quiesce().error["code"] == "unit.wrong-state"
    host.unit("wake", calls=[call("POST", "/wake")]).ok()
    assert host.accept().result
    error = host.unit("resume", calls=[], generation=9).error
    assert error["code"] == "unit.unknown"


def test_another_runs_lease_protects_a_unit(host):
    host.launch().ok()
    host.call("lease", "acquire", request={"unit": "u0", "run": "run-1", "ttl": 60.0})
    host.run = "run-2"
    for answer in (
        host.quiesce(),
        host.checkpoint(),
        host.launch(),
        host.accept(),
        host.unit("stop", grace=0),
        host.unit("expose"),
    ):
        assert answer.error["code"] == "lease.lost"
        assert "run-1 holds it" in answer.error["cause"]
    host.run = "run-1"
    assert host.states() == {1: "serving"}
    assert host.unit("stop", grace=0).result


def test_two_verbs_on_one_unit_never_overlap(host):
    host.launch().ok()
    slow = host.begin("call", "j1", calls=[call("GET", "/hang", timeout=600.0)])
    log = host.state / "units" / "u0" / "1" / "control" / "engine.log"
    wait_for(lambda: "hangs" in log.read_text())
    begin = time.monotonic()
    error = host.ask("GET", "/health").error
    assert error["code"] == "lease.busy"
    assert time.monotonic() - begin >= 4
    request = {"unit": "u0", "run": "run-2", "ttl": 60.0}
    held = host.call("lease", "acquire", request={"unit": "u0", "run": "run-1", "ttl": 1.0})
    assert held.result
    time.sleep(1.1)
    error = host.call("lease", "acquire", request=request).error
    assert error["code"] == "lease.held", "the lease ran out, but its verb is at work"
    host.call("job", "cancel", "j1")
    assert host.finish(slow).error["code"] == "run.cancelled"
    assert host.call("lease", "acquire", request=request).result


def test_an_answer_that_differs_is_shown_where(host):
    host.launch().ok()
    good = host.accept().result["answers"]
    assert host.accept(good).result["accepted"]
    token = json.loads(json.dumps(good))
    token[1]["tokens"][3] = " zzzz"
    error = host.accept(token).error
    assert error["code"] == "accept.differs"
    assert "prompt 1 ('two'): token 3 differs" in error["message"]
    assert error["details"][0] == "expected token ' zzzz'"
    logprob = json.loads(json.dumps(good))
    logprob[0]["logprobs"][2] -= 1e-6
    error = host.accept(logprob).error
    assert "log-probability of token 2" in error["message"]
    assert host.accept(logprob, tolerance=1e-5).result["accepted"]
    shorter = json.loads(json.dumps(good))
    shorter[0]["tokens"].pop()
    assert "lengths differ" in host.accept(shorter).error["message"]
    other = json.loads(json.dumps(good))
    other[0]["prompt"] = "another"
    assert "not the one recorded" in host.accept(other).error["message"]
    assert "recorded" in host.accept(good[:1]).error["message"]


def test_an_engine_without_streaming_is_asked_for_one_token(host):
    host.launch().ok()
    host.ask("POST", "/fail", {"name": "stream"}).ok()
    assert host.accept().result["first_token_method"] == "one-token"


def test_the_first_token_counts_from_the_given_start(host):
    host.launch().ok()
    t0 = time.clock_gettime(time.CLOCK_BOOTTIME) - 100
    answer = host.accept(t0_boottime=t0).result
    assert 100 < answer["first_token_seconds"] < 130
    assert answer["first_token_from"] == "t0_boottime"
    assert answer["first_token_method"] == "stream"


def test_a_dump_that_finds_no_room_leaves_the_engine_serving(host):
    host.launch().ok()
    before = host.accept().result["answers"]
    host.quiesce().ok()
    captures = host.state / "captures"
    captures.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(captures)], check=True)
    try:
        error = host.checkpoint().error
    finally:
        subprocess.run(["umount", "-l", str(captures)], check=True)
    assert "No space left" in json.dumps(error) or error["code"] == "file.disk-full", error
    assert "the engine serves again" in error["details"]
    assert host.states() == {1: "serving"}
    assert host.accept(before).result["accepted"]


@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "no-index"])
def test_an_export_that_its_disk_damaged_is_no_capture(host, damage):
    host.launch().ok()
    host.quiesce().ok()
    control = host.state / "units" / "u0" / "1" / "control"
    pack, index = control / "payload.pack", control / "payload.index.json"
    whole = pack.read_bytes()
    if damage == "cut":
        os.truncate(pack, 1000)
    elif damage == "changed":
        pack.chmod(0o600)
        pack.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    elif damage == "gone":
        pack.unlink()
    else:
        index.unlink()
    error = host.checkpoint().error
    assert error["code"] == "checkpoint.payload-damaged"
    assert not list((host.state / "captures").glob("*/*"))


def test_after_a_capture_the_engine_keeps_no_copy_of_its_model(host):
    host.launch().ok()
    control = host.state / "units" / "u0" / "1" / "control"
    host.quiesce().ok()
    assert (control / "payload.pack").exists()
    host.checkpoint().ok()
    assert not (control / "payload.pack").exists()
    host.quiesce().ok()
    host.unit("resume", calls=[RESUME]).ok()
    assert not (control / "payload.pack").exists()
