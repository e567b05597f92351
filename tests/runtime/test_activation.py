"""A restore that goes through to the acceptance in one process, and all that can stop it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from runtime_target import HYDRATE, Host, call, descriptor

pytestmark = pytest.mark.criu

READY = call("GET", "/health", retry_seconds=10.0)
HYDRATION = {"calls": [HYDRATE], "ready": READY}
QUESTIONS: dict[str, Any] = {"path": "/v1/completions", "body": {}, "tolerance": 0.0}
THROUGH = {"hydrate": HYDRATION, "accept": QUESTIONS}


def published(host: Host, change: Any = None) -> str:
    """An artifact that holds the answers of its capture, or what `change` makes of them."""
    host.launch().ok()
    answers = host.accept().result["answers"]
    host.quiesce().ok()
    captured = host.checkpoint().result
    draft = descriptor(captured)
    if change is not None:
        change(answers)
    draft["extensions"] |= {"answers": answers, "cold_start_seconds": 12.5}
    request = {
        "store": str(host.state / "store"),
        "capture_dir": captured["capture_dir"],
        "descriptor": draft,
        "tags": ["tiny"],
        "run": host.run,
        "unit": "u0",
    }
    return str(host.call("store.publish", request=request).result["manifest"])


def images(host: Host) -> list[Path]:
    return list(host.state.glob("images/u0/*"))


def test_restore_hydrate_first_token_and_acceptance_in_one_verb(host: Host) -> None:
    manifest = published(host)
    result = host.restore(manifest, then=THROUGH).result
    assert host.states() == {1: "serving", 2: "serving"}
    accepted = result["accepted"]
    assert accepted["compared"] is True
    assert accepted["first_token_from"] == "restore"
    assert 0 < accepted["first_token_seconds"] < 30
    assert result["hydrated"]["bytes"] > 0
    assert result["recorded"]["cold_start_seconds"] == 12.5
    assert result["recorded"]["answers"] == accepted["answers"]
    names = [span["name"] for span in result["timing"]["spans"]]
    wanted = ["verify", "restore", "criu-restore", "hydrate", "ready", "first-token", "answer"]
    assert [name for name in dict.fromkeys(names) if name in wanted] == wanted
    identities = [span["id"] for span in result["timing"]["spans"]]
    assert len(set(identities)) == len(identities)
    first = next(s for s in result["timing"]["spans"] if s["name"] == "first-token")
    end = first["start_offset_seconds"] + first["duration_seconds"]
    assert end - result["t0_boottime"] >= accepted["first_token_seconds"] - 0.001
    assert not host.generations()[2]["exposed"], "nobody was let in before"


def test_the_status_tells_what_was_done(host: Host) -> None:
    result = host.restore(published(host), then=THROUGH).result
    request = {"unit": "u0", "details": True}
    rows = host.call("unit.status", request=request).result["units"]
    row = next(row for row in rows if row["generation"] == 2)
    assert row["accepted"] == result["accepted"]
    assert row["hydrated"] == result["hydrated"]
    assert "accepted" not in host.generations()[2], "only who asks gets it"
    again = host.unit("hydrate", calls=[HYDRATE], ready=READY, generation=2).result
    assert again["answers"] == [], "it has its bytes"


def test_it_can_stop_after_the_hydration(host: Host) -> None:
    manifest = published(host)
    result = host.restore(manifest, then={"hydrate": HYDRATION}).result
    assert host.states()[2] == "hydrated"
    assert "accepted" not in result
    assert host.accept(generation=2).result["first_token_from"] == "restore"
    assert host.states()[2] == "serving"


def test_ports_are_handed_over_last(host: Host) -> None:
    result = host.restore(published(host), then=THROUGH, expose=True).result
    names = [span["name"] for span in result["timing"]["spans"]]
    assert names.index("expose") > names.index("answer")
    assert host.generations()[2]["exposed"]


def test_an_answer_that_differs_undoes_the_generation(host: Host) -> None:
    def change(answers: list[Any]) -> None:
        answers[1]["tokens"][2] = " zzzz"

    manifest = published(host, change)
    error = host.restore(manifest, then=THROUGH).error
    assert error["code"] == "accept.differs"
    assert "prompt 1 ('two'): token 2 differs" in error["message"]
    live = {number for number, state in host.states().items() if state == "serving"}
    assert live == {1}, "the new one is gone, the old one serves"
    assert not images(host)
    assert not list((host.state / "store" / "pins").glob("*.json"))


def test_a_hydration_that_fails_undoes_the_generation(host: Host) -> None:
    manifest = published(host)
    then = {**THROUGH, "hydrate": {"calls": [call("POST", "/nowhere")], "ready": READY}}
    error = host.restore(manifest, then=then).error
    assert error["code"] == "engine.call-failed"
    assert host.states().get(2) in (None, "stopped", "dead")
    assert host.states()[1] == "serving"
    assert not images(host)


def test_without_recorded_answers_nothing_is_started(host: Host) -> None:
    manifest, _ = host.captured()
    error = host.restore(manifest, then=THROUGH).error
    assert error["code"] == "accept.nothing-expected"
    assert "nothing was started" in error["details"]
    assert host.states() == {1: "serving"}
    assert not images(host)


@pytest.mark.parametrize(
    "then",
    [
        {"accept": QUESTIONS},
        {"hydrate": HYDRATION, "more": 1},
        {"hydrate": {"calls": []}},
        {"hydrate": HYDRATION, "accept": {"tokens": 0}},
        [],
    ],
)
def test_what_follows_is_checked_before_anything(host: Host, then: Any) -> None:
    request = {"store": "/nothing", "artifact": "sha256:" + "0" * 64, "ports": [], "mounts": []}
    error = host.unit("restore", **request, then=then).error
    assert error["code"] == "request.invalid"
    assert "then" in error["message"]


@pytest.mark.parametrize("message", ["restoring unit", "POST /hydrate", "prompts"])
def test_one_that_was_killed_is_done_again_under_its_id(host: Host, message: str) -> None:
    manifest = published(host)
    slow = {**HYDRATION, "calls": [HYDRATE, call("GET", "/health")]}
    then = {"hydrate": slow, "accept": QUESTIONS}
    fields = {"store": str(host.state / "store"), "artifact": manifest, "ports": [], "mounts": []}
    process = host.begin("restore", "j1", **fields, verify="record", expose=False, then=then)
    events = host.state / "jobs" / "j1" / "events.jsonl"
    while message not in (events.read_text() if events.exists() else ""):
        assert process.poll() is None, "it was too fast to be killed"
    record = json.loads((host.state / "jobs" / "j1" / "job.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)
    first = host.finish(process)
    if first.status == 0:
        pytest.skip("it ended before the signal came")
    again = host.restore(manifest, "j1", then=then).result
    assert again["accepted"]["compared"]
    live = [number for number, state in host.states().items() if state == "serving"]
    assert live == [1, again["generation"]], "of the killed attempt nothing is left"
    assert len([path for path in images(host) if path.is_dir()]) == 1
