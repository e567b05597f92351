"""Leases: one run per unit, by a clock that nobody can set."""

from __future__ import annotations

import json
import os
import time

import pytest

from coldsnap_runtime.timing import boottime


def ask(runtime, verb, run="r1", unit="u0", **fields):
    return runtime.call("lease", verb, request={"unit": unit, "run": run, **fields})


def test_a_second_run_is_refused_by_name(runtime):
    ask(runtime, "acquire", holder="ann@desk", ttl=60)
    error = ask(runtime, "acquire", run="r2").error
    assert error["code"] == "lease.held"
    assert "run r1 of ann@desk" in error["message"]
    assert error["remedy"]
    assert ask(runtime, "acquire", run="r2", unit="u1").result["run"] == "r2"


def test_the_same_run_prolongs(runtime):
    first = ask(runtime, "acquire", ttl=5).result
    second = ask(runtime, "acquire", ttl=500).result
    third = ask(runtime, "renew", ttl=600).result
    assert first["expires_boottime"] < second["expires_boottime"] < third["expires_boottime"]
    assert 590 < third["seconds_left"] <= 600


def test_an_expired_lease_goes_to_who_asks_and_the_old_run_has_lost_it(runtime):
    ask(runtime, "acquire", ttl=1)
    time.sleep(1.05)
    assert ask(runtime, "acquire", run="r2").result["run"] == "r2"
    error = ask(runtime, "renew").error
    assert error["code"] == "lease.lost"
    assert "run r2 holds it" in error["cause"]


def test_a_late_renewal_is_fine_while_nobody_took_it(runtime):
    ask(runtime, "acquire", ttl=1)
    time.sleep(1.05)
    assert ask(runtime, "renew", ttl=60).result["seconds_left"] > 50


def test_a_lease_of_another_boot_has_expired(runtime):
    ask(runtime, "acquire", ttl=3600)
    path = runtime.state / "leases" / "u0.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"boot_id": "another"}))
    assert ask(runtime, "renew").error["code"] == "lease.lost"
    assert ask(runtime, "acquire", run="r2").result["run"] == "r2"


def test_the_wall_clock_is_not_in_it(runtime):
    """The file's times are seconds since boot, whatever time.time() says."""
    ask(runtime, "acquire", ttl=100)
    stored = json.loads((runtime.state / "leases" / "u0.json").read_text())
    assert stored["expires_boottime"] == pytest.approx(boottime() + 100, abs=5)
    # What a jump of the wall clock changes: the file's times on disk. They are not looked at.
    os.utime(runtime.state / "leases" / "u0.json", (0, 0))
    assert ask(runtime, "acquire", run="r2").error["code"] == "lease.held"


def test_release_gives_back_the_own_lease_only(runtime):
    ask(runtime, "acquire", ttl=60)
    assert ask(runtime, "release", run="r2").result["released"] is False
    assert ask(runtime, "acquire", run="r2").error["code"] == "lease.held"
    assert ask(runtime, "release").result["released"] is True
    shown = runtime.call("lease", "show", request={"unit": "u0"}).result
    assert shown == {"unit": "u0", "lease": None}
    assert ask(runtime, "acquire", run="r2").result


def test_of_many_at_once_exactly_one_gets_it(runtime):
    asked = [
        runtime.start("lease", "acquire", request={"unit": "u0", "run": f"r{number}"})
        for number in range(8)
    ]
    answers = [runtime.finish(process) for process in asked]
    winners = [answer.result["run"] for answer in answers if answer.status == 0]
    assert len(winners) == 1
    refused = [answer.error["code"] for answer in answers if answer.status == 1]
    assert refused == ["lease.held"] * 7


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format":1}', b"\xff" * 70000])
def test_a_damaged_file_blocks_nobody(runtime, content):
    ask(runtime, "acquire", ttl=60)
    (runtime.state / "leases" / "u0.json").write_bytes(content)
    answer = ask(runtime, "acquire", run="r2")
    assert answer.status == 0, answer.last


@pytest.mark.parametrize("unit", ["../x", "", "a/b", "a" * 129, ".hidden"])
def test_a_unit_is_no_path(runtime, unit):
    assert ask(runtime, "acquire", unit=unit).error["code"] == "request.invalid"
