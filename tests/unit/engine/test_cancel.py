from __future__ import annotations

import signal
import time

from engine_world import World, fast_retry, node

from coldsnap.engine.applying import apply
from coldsnap.engine.cancel import CancelToken
from coldsnap.engine.events import Kind
from coldsnap.engine.outcome import RunState
from coldsnap.engine.resuming import resume
from coldsnap.engine.rolling_back import rollback
from coldsnap.engine.runs import Runs
from coldsnap.plan.model import Retry


def cancel_when(world: World, kind: Kind, step: str, *signals: int) -> None:
    def on_event(event: object) -> None:
        if event.kind is kind and event.key.step == step:
            world.on_event = lambda _event: None
            for signum in signals:
                world.cancel.request(signum)

    world.on_event = on_event


def fresh(world: World) -> None:
    world.cancel = CancelToken()


def test_first_ctrl_c_finishes_what_runs_and_starts_nothing_more(world: World) -> None:
    steps = [node("a", seconds=0.3), node("b", needs=["a"])]
    cancel_when(world, Kind.STEP_STARTED, "a", signal.SIGINT)
    result = apply(world.setup(*steps))
    assert (result.state, result.exit_code) == (RunState.CANCELLED, 130)
    assert world.state("a-1") == {"a": "v-a"}
    said = world.said(Kind.CANCELLING)
    assert "a/a-1" in said[0].message
    fresh(world)
    assert resume(world.setup(*steps), Runs(world.folder).find("latest")).exit_code == 0
    assert world.state("a-1") == {"a": "v-a", "b": "v-b"}


def test_second_ctrl_c_cuts_off_at_once(world: World) -> None:
    steps = [node("a"), node("b", needs=["a"], seconds=30)]
    cancel_when(world, Kind.STEP_STARTED, "b", signal.SIGINT, signal.SIGINT)
    started = time.monotonic()
    result = apply(world.setup(*steps))
    assert time.monotonic() - started < 20
    assert (result.state, result.exit_code) == (RunState.CANCELLED, 130)
    assert world.state("a-1") == {"a": "v-a"}
    fresh(world)
    assert rollback(world.setup(*steps), Runs(world.folder).find("latest")).exit_code == 0
    assert world.state("a-1") == {}


def test_sigterm_is_the_first_stage_however_often_it_comes(world: World) -> None:
    cancel_when(world, Kind.STEP_STARTED, "a", signal.SIGTERM, signal.SIGTERM, signal.SIGTERM)
    result = apply(world.setup(node("a", seconds=0.3), node("b", needs=["a"])))
    assert result.exit_code == 143
    assert world.state("a-1") == {"a": "v-a"}


def test_pause_is_put_back_when_what_needs_it_is_cancelled(world: World) -> None:
    steps = [node("a"), node("p", "t.pause", ["a"], seconds=0.2), node("c", needs=["p"])]
    cancel_when(world, Kind.STEP_STARTED, "p", signal.SIGINT)
    result = apply(world.setup(*steps))
    assert result.exit_code == 130
    assert world.state("a-1") == {"a": "v-a"}
    fresh(world)
    result = resume(world.setup(*steps), Runs(world.folder).find("latest"))
    assert result.exit_code == 0
    assert world.state("a-1") == {"a": "v-a", "p": "v-p", "c": "v-c"}
    jobs = [job for op, key, job in world.log("a-1") if key == "p" and op == "fake:set"]
    assert len(set(jobs)) == 2


def test_pause_is_put_back_even_when_what_needs_it_is_cut_off(world: World) -> None:
    steps = [node("a"), node("p", "t.pause", ["a"]), node("c", needs=["p"], seconds=30)]
    cancel_when(world, Kind.STEP_STARTED, "c", signal.SIGINT, signal.SIGINT)
    started = time.monotonic()
    result = apply(world.setup(*steps))
    assert time.monotonic() - started < 20
    assert (result.state, result.exit_code) == (RunState.CANCELLED, 130)
    assert world.state("a-1") == {"a": "v-a"}


def test_putting_back_a_pause_is_not_cut_off(world: World) -> None:
    steps = [node("a"), node("p", "t.pause", ["a"], seconds=0.3), node("c", needs=["p"])]
    cancel_when(world, Kind.STEP_STARTED, "p", signal.SIGINT)

    def second(event: object) -> None:
        if event.kind is Kind.STEP_RECOVERING:
            world.on_event = lambda _event: None
            world.cancel.request(signal.SIGINT)

    first = world.on_event

    def on_event(event: object) -> None:
        first(event)
        if world.on_event is not on_event:
            world.on_event = second

    world.on_event = on_event
    result = apply(world.setup(*steps))
    assert result.exit_code == 130
    assert world.state("a-1") == {"a": "v-a"}


def test_cancel_ends_the_wait_before_a_retry(world: World) -> None:
    cancel_when(world, Kind.STEP_RETRY, "a", signal.SIGINT)
    started = time.monotonic()
    retry = Retry(attempts=5, delay=60.0)
    result = apply(world.setup(node("a", fail=9, retry=retry, hosts="a-1")))
    assert time.monotonic() - started < 20
    assert result.exit_code == 130
    assert result.errors[0].code == "test.failed"


def test_cancel_that_comes_after_the_end_changes_nothing(world: World) -> None:
    cancel_when(world, Kind.STEP_DONE, "a", signal.SIGINT)
    result = apply(world.setup(node("a", hosts="a-1")))
    assert (result.state, result.exit_code) == (RunState.SUCCEEDED, 0)


def test_cancel_releases_those_who_wait_in_a_barrier(world: World) -> None:
    steps = [
        node("slow", hosts="a-1", seconds=0.5),
        node("m", "t.meet", ["slow"], deadline=60.0),
    ]
    cancel_when(world, Kind.STEP_STARTED, "slow", signal.SIGINT)
    started = time.monotonic()
    result = apply(world.setup(*steps))
    assert time.monotonic() - started < 20
    assert result.exit_code == 130


def test_failure_while_cancelling_is_recovered(world: World) -> None:
    steps = [node("a"), node("b", needs=["a"], fail=1, retry=fast_retry(1)), node("c", needs=["b"])]
    cancel_when(world, Kind.STEP_STARTED, "b", signal.SIGINT)
    result = apply(world.setup(*steps))
    assert result.exit_code == 130
    assert world.state("a-1") == {}


def test_step_that_ignores_the_cut_is_left_behind(world: World) -> None:
    cancel_when(world, Kind.STEP_STARTED, "a", signal.SIGINT, signal.SIGINT)
    from coldsnap.engine import schedule  # noqa: PLC0415

    schedule._GIVE_UP_AFTER = 0.3
    try:
        started = time.monotonic()
        result = apply(world.setup(node("a", "t.run", seconds=60)))
        assert time.monotonic() - started < 40
    finally:
        schedule._GIVE_UP_AFTER = 15.0
    assert result.exit_code == 130
