"""A child that dies, in every way it can, hangs nobody."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet import InventoryFleet, early
from coldsnap.fleet.entries import HostEntry, Inventory
from coldsnap.fleet.link import Link
from coldsnap.sdk.host import FactRequest, OperationRequest

CHILD = Path(__file__).parents[2] / "fakes/dying_child.py"
FACT = FactRequest("p.f:Fact")
OPERATION = OperationRequest("p.o:run")


@pytest.fixture
def fleet_with():
    made = []

    def make(*manner: str) -> InventoryFleet:
        link = Link((sys.executable, str(CHILD), *manner))
        entry = HostEntry("h", "ssh", data={"ssh_hostname": "h"})
        made.append(InventoryFleet(Inventory("x", {"h": entry}, {}), link))
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()


def test_a_fact_is_asked_again_of_a_new_child(fleet_with, tmp_path):
    fleet = fleet_with("once", str(tmp_path / "died"))
    assert fleet.host("h").ask(FACT) == 1
    assert (tmp_path / "died").exists()


def test_many_waiting_threads_all_come_back(fleet_with, tmp_path):
    fleet = fleet_with("once", str(tmp_path / "died"))
    got: list[object] = []
    threads = [
        threading.Thread(target=lambda: got.append(fleet.host("h").ask(FACT))) for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert got == [1] * 20


def test_a_child_that_always_dies_is_an_error_not_a_loop(fleet_with):
    with pytest.raises(ColdSnapError) as caught:
        fleet_with("always").host("h").ask(FACT)
    assert caught.value.code == "fleet.child-died"
    assert "killed by a test" in caught.value.cause


def test_a_child_that_cannot_start_says_why(fleet_with):
    fleet = fleet_with("at-start")
    with pytest.raises(ColdSnapError) as caught:
        fleet.host("h").ask(FACT)
    assert "no module named pyinfra" in caught.value.cause
    assert fleet.connect(["h"])["h"].code == "fleet.child-died"


def test_an_operation_is_never_sent_twice(fleet_with, tmp_path):
    fleet = fleet_with("once", str(tmp_path / "died"))
    with pytest.raises(ColdSnapError) as caught:
        fleet.host("h").perform(OPERATION)
    assert (caught.value.code, caught.value.changed) == ("fleet.child-died", True)


def test_an_operation_with_a_job_is_rejoined_by_the_new_child(fleet_with, tmp_path):
    fleet = fleet_with("once", str(tmp_path / "died"))
    result = fleet.host("h").perform(OperationRequest("p.o:run", {"pack": "/p"}, job="j7"))
    assert result.result == {"rejoined": "j7"}


def test_nonsense_from_the_child_is_passed_over(fleet_with):
    assert fleet_with("garbage").host("h").ask(FACT) == 1


def test_close_ends_a_child_that_does_not_listen(fleet_with, monkeypatch):
    monkeypatch.setattr("coldsnap.fleet.link.CLOSE_SECONDS", 0.2)
    fleet = fleet_with("silent")
    errors = []

    def ask():
        try:
            fleet.host("h").perform(OPERATION)
        except ColdSnapError as error:
            errors.append(error.code)

    thread = threading.Thread(target=ask)
    thread.start()
    while fleet.link.pid is None:
        time.sleep(0.01)
    time.sleep(0.2)
    began = time.monotonic()
    fleet.close()
    thread.join(10)
    assert errors == ["fleet.child-died"]
    assert time.monotonic() - began < 20
    with pytest.raises(ColdSnapError, match="closed"):
        fleet.host("h").ask(FACT)


def test_close_twice_and_without_a_child_is_nothing(fleet_with):
    fleet = fleet_with("always")
    fleet.close()
    fleet.close()


def test_a_child_that_was_started_early_is_taken_over_once():
    early.begin()
    (waiting,) = early._waiting
    early.begin()
    assert len(early._waiting) == 1, "one is enough"
    link = Link()
    try:
        assert link.start() is waiting
        assert not early._waiting
        other = Link()
        try:
            assert other.start() is not waiting
        finally:
            other.close()
    finally:
        link.close()


def test_a_child_that_nobody_needs_ends_with_the_process():
    code = "from coldsnap.fleet import early; early.begin(); print(early._waiting[0].pid)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert not Path(f"/proc/{done.stdout.strip()}").exists()


def test_a_link_to_another_program_does_not_take_it(fleet_with):
    early.begin()
    try:
        fleet_with("garbage").host("h").ask(FACT)
        assert len(early._waiting) == 1
    finally:
        early._end()
