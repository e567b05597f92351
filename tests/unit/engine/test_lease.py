from __future__ import annotations

import threading
from typing import Any, ClassVar

import pytest
from engine_world import World, node

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.applying import apply
from coldsnap.engine.events import Kind
from coldsnap.engine.jobs import TargetJobs
from coldsnap.engine.lease import HeldLeases, TargetLeases
from coldsnap.engine.outcome import RunState
from coldsnap.engine.setup import Limits
from coldsnap.sdk import OperationRequest, OperationResult, RuntimeRef, Unit

UNITS = [Unit(id="u0", hosts="all")]


class Keeper:
    """Leases of all hosts in memory, with the calls made."""

    def __init__(self) -> None:
        self.holders: dict[tuple[str, str], str] = {}
        self.calls: list[tuple[str, str, str]] = []
        self.lost = False

    def acquire(self, host: Any, unit: str, run: str, ttl: float) -> None:
        self.calls.append(("acquire", host.name, unit))
        holder = self.holders.setdefault((host.name, unit), run)
        if holder != run:
            raise ColdSnapError("lease.held", f"run {holder} holds unit {unit}", host.name)

    def renew(self, host: Any, unit: str, run: str, ttl: float) -> None:
        self.calls.append(("renew", host.name, unit))
        if self.lost:
            raise ColdSnapError("lease.lost", f"unit {unit} is leased to another run", host.name)

    def release(self, host: Any, unit: str, run: str) -> None:
        self.calls.append(("release", host.name, unit))
        if self.holders.get((host.name, unit)) == run:
            del self.holders[host.name, unit]


def test_lease_is_taken_before_the_first_change_and_given_back(world: World) -> None:
    keeper = Keeper()
    steps = [node("h"), node("a", "t.unit", ["h"]), node("b", "t.unit", ["a"])]
    apply(world.setup(*steps, units=UNITS, leases=keeper))
    for host in world.hosts:
        own = [verb for verb, name, _unit in keeper.calls if name == host]
        assert own == ["acquire", "release"]
    assert keeper.holders == {}


def test_nothing_to_do_takes_no_lease(world: World) -> None:
    apply(world.setup(node("a", "t.unit"), units=UNITS))
    keeper = Keeper()
    apply(world.setup(node("a", "t.unit"), units=UNITS, leases=keeper))
    assert keeper.calls == []


def test_second_run_is_refused_and_changes_nothing(world: World) -> None:
    keeper = Keeper()
    keeper.holders["a-1", "u0"] = "01OTHER"
    result = apply(world.setup(node("a", "t.unit"), units=UNITS, leases=keeper))
    assert result.errors[0].code == "lease.held"
    assert world.state("a-1") == {}
    assert keeper.holders == {("a-1", "u0"): "01OTHER"}


def test_state_is_observed_again_once_the_lease_is_held(world: World) -> None:
    class Slow(Keeper):
        def acquire(self, host: Any, unit: str, run: str, ttl: float) -> None:
            super().acquire(host, unit, run, ttl)
            world.set(host.name, **{"a.u0": "v-a"})  # the run before us has just done it

    result = apply(world.setup(node("a", "t.unit"), units=UNITS, leases=Slow()))
    assert (result.changed, result.unchanged) == (0, 2)
    assert world.log("a-1") == []


def test_leases_are_renewed_while_steps_run(world: World) -> None:
    keeper = Keeper()
    setup = world.setup(
        node("a", "t.unit", seconds=0.8), units=UNITS, leases=keeper, limits=Limits(lease_ttl=0.3)
    )
    apply(setup)
    assert sum(verb == "renew" for verb, _host, _unit in keeper.calls) >= 8


def test_lost_lease_stops_the_run_and_leaves_everything(world: World) -> None:
    keeper = Keeper()
    keeper.lost = True
    setup = world.setup(
        node("a", "t.unit", seconds=0.5),
        node("b", "t.unit", ["a"]),
        units=UNITS,
        leases=keeper,
        limits=Limits(lease_ttl=0.3),
    )
    result = apply(setup)
    assert (result.state, result.exit_code) == (RunState.PARTIAL, 3)
    assert result.errors[0].code == "lease.lost"
    assert "b.u0" not in world.state("a-1")
    assert not any(op == "fake:unset" for op, _key, _job in world.log("a-1"))


def test_host_that_hangs_does_not_let_the_leases_of_others_run_out() -> None:
    renewed = threading.Event()

    class Hanging(Keeper):
        def renew(self, host: Any, unit: str, run: str, ttl: float) -> None:
            if host.name == "hangs":
                assert renewed.wait(30)
            else:
                renewed.set()

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

    keeper = Hanging()
    lost: list[ColdSnapError] = []
    with HeldLeases(keeper, "R", on_lost=lost.append, record=lambda *_: None, ttl=3.0) as leases:
        leases.hold(Named("hangs"), "u0")
        leases.hold(Named("fine"), "u0")
        assert renewed.wait(30)
    assert lost == []


def test_lease_that_cannot_be_given_back_is_no_failure(world: World) -> None:
    class Sticky(Keeper):
        def release(self, host: Any, unit: str, run: str) -> None:
            raise ColdSnapError("host.unreachable", "gone", host.name)

    result = apply(world.setup(node("a", "t.unit"), units=UNITS, leases=Sticky()))
    assert result.exit_code == 0
    assert world.last().leases == {("a-1", "u0"), ("a-2", "u0")}


def test_target_leases_call_the_runtime_pack() -> None:
    asked: list[OperationRequest] = []

    class Host:
        name = "h"
        vars: ClassVar = {"state_dir": "/srv/cs", "python": "/usr/bin/python3.12"}

        def perform(self, request: OperationRequest, **_kwargs: Any) -> OperationResult:
            asked.append(request)
            return OperationResult(True, {})

    runtime = RuntimeRef("sha256:" + "a" * 64, "x.tar", "sha256:0", 1)
    leases = TargetLeases(runtime)
    leases.acquire(Host(), "u0", "R", 90.0)
    leases.release(Host(), "u0", "R")
    assert [request.args["verb"] for request in asked] == ["acquire", "release"]
    assert asked[0].operation == "coldsnap_core.operations:lease"
    assert asked[0].args["request"] == {"unit": "u0", "run": "R", "ttl": 90.0}
    assert asked[0].args["pack"] == "/srv/cs/runtime/sha256/" + "a" * 64
    assert asked[0].args["python"] == "/usr/bin/python3.12"


def test_without_a_runtime_pack_a_unit_is_not_touched(world: World) -> None:
    result = apply(world.setup(node("a", "t.unit"), units=UNITS, leases=None))
    assert result.errors[0].code == "runtime.missing"
    assert world.log("a-1") == []


@pytest.mark.parametrize("kind", [Kind.STEP_FAILED])
def test_refusal_is_told(world: World, kind: Kind) -> None:
    keeper = Keeper()
    keeper.holders["a-1", "u0"] = "01OTHER"
    apply(world.setup(node("a", "t.unit", hosts="a-1"), units=UNITS, leases=keeper))
    assert world.said(kind)[0].error.code == "lease.held"


def test_jobs_of_a_killed_run_are_ended_before_their_change_is_put_back(world: World) -> None:
    ended: list[tuple[str, str]] = []

    class Ender:
        def end(self, host: Any, job: str) -> None:
            ended.append((host.name, job))
            assert "a.u0" in world.state(host.name)

    setup = world.setup(
        node("a", "t.unit"), node("b", "t.unit", ["a"], fail=1), units=UNITS, jobs=Ender()
    )
    result = apply(setup)
    assert result.state is RunState.RECOVERED
    assert ("a-1", f"{result.run}.a.u0") in ended


def test_jobs_on_a_target_are_ended_through_its_runtime_pack() -> None:
    asked: list[OperationRequest] = []

    class Host:
        name = "h"
        vars: ClassVar = {"state_dir": "/srv/cs"}

        def perform(self, request: OperationRequest, **_kwargs: Any) -> OperationResult:
            asked.append(request)
            return OperationResult(True)

    TargetJobs(RuntimeRef("sha256:" + "a" * 64, "x.tar", "sha256:0", 1)).end(Host(), "R.a")
    assert asked[0].operation == "coldsnap_core.operations:jobs_ended"
    assert (asked[0].args["job"], asked[0].args["state_dir"]) == ("R.a", "/srv/cs")
    TargetJobs(None).end(Host(), "R.a")
    assert len(asked) == 1
