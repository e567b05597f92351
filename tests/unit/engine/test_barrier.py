from __future__ import annotations

import threading
import time
from pathlib import Path

from engine_world import World, node

from coldsnap.engine.applying import apply
from coldsnap.engine.barrier import Barriers, InstanceBarrier
from coldsnap.engine.resuming import resume
from coldsnap.engine.runs import Runs
from coldsnap.engine.setup import Limits
from coldsnap.sdk import BarrierOutcome


def together(barriers: Barriers, names: list[str], expected: list[str], deadline: float) -> dict:
    outcomes: dict[str, BarrierOutcome] = {}

    def go(name: str) -> None:
        outcomes[name] = InstanceBarrier(barriers, "s").arrive("all", name, expected, deadline)

    threads = [threading.Thread(target=go, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return outcomes


def test_all_arrive() -> None:
    outcomes = together(Barriers(), ["x", "y", "z"], ["x", "y", "z"], 5)
    assert len(set(map(id, outcomes.values()))) == 1
    assert outcomes["x"].passed
    assert outcomes["x"].arrived == ("x", "y", "z")


def test_stragglers_are_named_at_the_deadline() -> None:
    started = time.monotonic()
    outcomes = together(Barriers(), ["x", "y"], ["x", "y", "late", "later"], 0.3)
    assert time.monotonic() - started > 0.25
    assert not outcomes["x"].passed
    assert outcomes["x"].stragglers == ("late", "later")
    assert outcomes["x"] == outcomes["y"]
    assert outcomes["x"].waited >= 0.29


def test_late_arrival_gets_the_same_outcome() -> None:
    barriers = Barriers()
    early = together(barriers, ["x"], ["x", "y"], 0.1)
    late = together(barriers, ["y"], ["x", "y"], 5)
    assert late["y"] == early["x"]


def test_abort_releases_everybody() -> None:
    barriers = Barriers()
    one = InstanceBarrier(barriers, "s")
    threading.Timer(0.2, lambda: one.abort("all", "y", "no memory")).start()
    outcomes = together(barriers, ["x"], ["x", "y"], 30)
    assert (outcomes["x"].aborted_by, outcomes["x"].reason) == ("y", "no memory")
    assert not outcomes["x"].passed


def test_withdrawn_participant_is_known_before_and_while_waiting() -> None:
    barriers = Barriers()
    threading.Timer(0.2, lambda: barriers.withdraw("s", "y", "failed")).start()
    outcomes = together(barriers, ["x"], ["x", "y"], 30)
    assert outcomes["x"].aborted_by == "y"
    again = InstanceBarrier(barriers, "s", attempt=2).arrive("all", "x", ["x", "y"], 30)
    assert again.aborted_by == "y"


def test_excused_participant_counts_as_arrived() -> None:
    barriers = Barriers()
    barriers.excuse("s", "y")
    assert together(barriers, ["x"], ["x", "y"], 30)["x"].passed


def test_attempts_and_steps_have_barriers_of_their_own() -> None:
    barriers = Barriers()
    InstanceBarrier(barriers, "s", 1).arrive("all", "x", ["x", "y"], 0.01)
    assert InstanceBarrier(barriers, "s", 2).arrive("all", "x", ["x"], 1).passed
    assert InstanceBarrier(barriers, "t", 1).arrive("all", "x", ["x"], 1).passed


def test_barrier_of_more_participants_than_the_pool_has_places(tmp_path: Path) -> None:
    world = World(tmp_path, [f"a-{number}" for number in range(30)])
    setup = world.setup(
        node("a"),
        node("m", "t.meet", ["a"]),
        node("b", needs=["m"]),
        limits=Limits(overall=2, per_host=1),
    )
    assert apply(setup).exit_code == 0
    done = [e for e in world.events if e.kind.value == "step-done"]
    last_a = max(i for i, e in enumerate(done) if e.key.step == "a")
    first_b = min(i for i, e in enumerate(done) if e.key.step == "b")
    assert last_a < first_b


def test_failed_participant_ends_the_barrier_at_once_and_is_the_only_cause(world: World) -> None:
    steps = [node("a", fail=1, hosts="a-1"), node("x", hosts="a-2", seconds=0.2)]
    steps += [node("m", "t.meet", ["a", "x"], deadline=60.0), node("z", needs=["m"])]
    started = time.monotonic()
    result = apply(world.setup(*steps))
    assert time.monotonic() - started < 20
    assert [error.code for error in result.errors] == ["test.failed"]


def test_participant_that_failed_inside_the_walk_is_the_only_cause(world: World) -> None:
    # a-1 reaches the barrier; a-2 fails before it, in a step of its own host.
    steps = [
        node("a", value="{{ host.name }}"),
        node("b", needs=["a"], hosts="a-2", fail=1, seconds=0.0),
        node("c", needs=["a"], hosts="a-1"),
        node("m", "t.meet", ["b", "c"], deadline=60.0),
    ]
    started = time.monotonic()
    result = apply(world.setup(*steps))
    assert time.monotonic() - started < 20
    assert [error.code for error in result.errors] == ["test.failed"]
    assert result.exit_code == 1


def test_skipped_participant_is_not_waited_for(world: World) -> None:
    steps = [node("m", "t.meet", when="host.name == 'a-1'", deadline=30.0), node("b", needs=["m"])]
    started = time.monotonic()
    assert apply(world.setup(*steps)).exit_code == 0
    assert time.monotonic() - started < 20


def test_barrier_passed_before_a_resume(world: World) -> None:
    steps = [
        node("m", "t.meet", deadline=5.0),
        node("b", needs=["m"], fail=1, on_failure="stop", hosts="a-1"),
    ]
    assert apply(world.setup(*steps)).exit_code == 1  # nothing was changed
    assert resume(world.setup(*steps), Runs(world.folder).find("latest")).exit_code == 0
