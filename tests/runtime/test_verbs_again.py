"""Verbs that are called again: after they were killed, or after they were done."""

from __future__ import annotations

import json
import os
import signal

import pytest
from runtime_target import DIGEST, RESUME, Host, descriptor, read, watchdogs
from waiting import wait_for

pytestmark = pytest.mark.criu


def kill_job_at(host: Host, job: str, process, message: str) -> None:
    """KILL the job's process as soon as it has said `message`, and collect its caller."""
    events = host.state / "jobs" / job / "events.jsonl"
    wait_for(lambda: message in read(events))
    record = json.loads((host.state / "jobs" / job / "job.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)
    assert host.finish(process).error["code"] == "job.dead"


@pytest.mark.parametrize("moment", ["verifying", "restoring unit"])
def test_a_restore_that_was_killed_is_done_again_under_its_id(host, moment):
    manifest, answers = host.captured()
    request = {
        "store": str(host.state / "store"),
        "artifact": manifest,
        "ports": [],
        "mounts": [],
        "verify": "full",
        "expose": False,
    }
    kill_job_at(host, "j1", host.begin("restore", "j1", **request), moment)
    assert host.states()[1] == "serving", "the old one is untouched"
    again = host.unit("restore", "j1", **request).result["generation"]
    live = [n for n, s in host.states().items() if s not in ("stopped", "dead")]
    assert live == [1, again]
    assert len(list((host.state / "images" / "u0").glob("*.json"))) == 1
    assert len(list((host.state / "store" / "pins").glob("*.json"))) == 1
    host.hydrate(generation=again).ok()
    assert host.accept(answers, generation=again).result["accepted"]


def test_a_checkpoint_that_was_killed_is_done_again_or_resumed(host):
    host.launch().ok()
    before = host.accept().result["answers"]
    host.quiesce(hold=120.0).ok()
    request = {"capture_id": "c1", "request_sha256": DIGEST, "resume": [RESUME]}
    kill_job_at(host, "j1", host.begin("checkpoint", "j1", **request), "dumping unit")
    assert host.states() == {1: "quiesced"}
    captured = host.unit("checkpoint", "j1", **request).result
    assert captured["objects"]
    assert host.accept(before).result["accepted"]
    host.quiesce(hold=120.0).ok()
    kill_job_at(host, "j2", host.begin("checkpoint", "j2", **request), "dumping unit")
    host.unit("resume", calls=[RESUME]).ok()
    assert host.states() == {1: "serving"}
    assert host.accept(before).result["accepted"]
    assert not watchdogs(host) or wait_for(lambda: not watchdogs(host)) is True


def test_a_launch_that_was_killed_is_done_again_under_its_id(host):
    request = host.launch_request(argv=("5",))
    process = host.begin("launch", "j1", **request)
    wait_for(lambda: host.states() == {1: "starting"})
    job = json.loads((host.state / "jobs" / "j1" / "job.json").read_text())
    os.kill(job["pid"], signal.SIGKILL)
    assert host.finish(process).error["code"] == "job.dead"
    again = host.unit("launch", "j1", **request)
    assert again.result["generation"] == 2
    assert host.states() == {1: "stopped", 2: "serving"}, "the half-started one is gone"


def test_a_cancelled_launch_leaves_nothing(host):
    process = host.begin("launch", "j1", **host.launch_request(argv=("60",)))
    wait_for(lambda: host.states() == {1: "starting"})
    host.call("job", "cancel", "j1")
    assert host.finish(process).error["code"] == "run.cancelled"
    assert host.states() in ({}, {1: "stopped"}), "by whether its PID 1 had come"


def test_verbs_repeat_without_harm(host):
    manifest, answers = host.captured()
    host.restore(manifest).ok()
    assert host.unit("expose", generation=2).error["code"] == "unit.wrong-state"
    assert host.accept(generation=2).error["code"] == "unit.wrong-state"
    first = host.hydrate(generation=2).result
    second = host.hydrate(generation=2).result
    assert (len(first["answers"]), second["answers"]) == (1, [])
    assert host.accept(answers, generation=2).result["accepted"]
    exposed = [host.unit("expose", generation=2).result["changed"] for _ in range(2)]
    assert exposed == [True, False]
    stopped = [host.unit("stop", generation=2, grace=0).result["was_live"] for _ in range(2)]
    assert stopped == [True, False]


def test_publishing_again_adds_nothing_and_needs_no_second_hash(host):
    host.launch().ok()
    host.quiesce().ok()
    captured = host.checkpoint().result
    first = host.publish(captured)
    request = {
        "store": str(host.state / "store"),
        "capture_dir": captured["capture_dir"],
        "descriptor": descriptor(captured),
        "tags": ["tiny"],
        "run": "run-1",
    }
    again = host.call("store.publish", request=request).result
    assert again["manifest"] == first
    assert (again["bytes_added"], again["bytes_copied"]) == (0, 0)


def test_an_image_of_an_ended_generation_goes_with_the_next_restore(host):
    manifest, _ = host.captured()
    host.restore(manifest).ok()
    os.kill(host.generations()[2]["pid"], signal.SIGKILL)
    wait_for(lambda: host.states()[2] == "dead")
    host.restore(manifest).ok()
    assert len(list((host.state / "images" / "u0").glob("*.json"))) == 1
