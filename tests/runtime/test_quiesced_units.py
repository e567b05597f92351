"""A quiesced unit never stays paused: failed calls, cancels, and the watchdog."""

from __future__ import annotations

import json
import os
import signal

import pytest
from runtime_target import RESUME, call, read, watchdogs
from waiting import wait_for

pytestmark = pytest.mark.criu


def test_a_failed_quiesce_puts_the_engine_back(host):
    host.launch().ok()
    before = host.accept().result["answers"]
    calls = [call("POST", "/quiesce", {"dir": "{dir}"}), call("POST", "/nowhere")]
    error = host.quiesce(calls=calls).error
    assert error["code"] == "engine.call-failed"
    assert "it serves again" in error["details"]
    assert error["changed"] is False
    assert host.states() == {1: "serving"}
    assert host.accept(before).result["accepted"]


def test_a_cancelled_quiesce_puts_the_engine_back(host):
    host.launch().ok()
    before = host.accept().result["answers"]
    request = {
        "calls": [call("POST", "/quiesce", {"dir": "{dir}"}), call("GET", "/hang", timeout=600.0)],
        "undo": [RESUME],
        "hold": 600.0,
    }
    process = host.begin("quiesce", "j1", **request)
    log = host.state / "units" / "u0" / "1" / "control" / "engine.log"
    wait_for(lambda: "POST /quiesce" in log.read_text())
    host.call("job", "cancel", "j1")
    assert host.finish(process).error["code"] == "run.cancelled"
    assert host.accept(before).result["accepted"]


def test_the_watchdog_resumes_a_unit_that_was_forgotten(host):
    host.launch().ok()
    before = host.accept().result["answers"]
    host.quiesce(hold=1.0).ok()
    assert host.states() == {1: "quiesced"}
    wait_for(lambda: host.states() == {1: "serving"})
    assert host.accept(before).result["accepted"]
    assert host.checkpoint().error["code"] == "unit.wrong-state"


def test_the_watchdog_survives_the_verb_that_started_it(host):
    """kill -9 in the middle of the calls: the engine is drained, and nobody would come back."""
    host.launch().ok()
    before = host.accept().result["answers"]
    request = {
        "calls": [call("POST", "/quiesce", {"dir": "{dir}"}), call("GET", "/hang", timeout=600.0)],
        "undo": [RESUME],
        "hold": 2.0,
    }
    process = host.begin("quiesce", "j1", **request)
    job = host.state / "jobs" / "j1" / "job.json"
    wait_for(job.exists)
    log = host.state / "units" / "u0" / "1" / "control" / "engine.log"
    wait_for(lambda: "hangs" in log.read_text())
    os.kill(json.loads(job.read_text())["pid"], signal.SIGKILL)
    process.kill()
    process.wait()
    wait_for(lambda: "resumed" in read(host.state / "units" / "u0" / "1" / "hold.log"))
    assert host.accept(before).result["accepted"]


def test_resume_dismisses_the_watchdog(host):
    host.launch().ok()
    host.quiesce(hold=600.0).ok()
    wait_for(lambda: len(watchdogs(host)) == 1)
    host.quiesce(hold=600.0).ok()
    wait_for(lambda: len(watchdogs(host)) == 1)
    host.unit("resume", calls=[RESUME]).ok()
    wait_for(lambda: not watchdogs(host))
