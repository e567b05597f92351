from __future__ import annotations

import threading
import time

import pytest
from engine_world import World, fast_retry, node

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine import freshness
from coldsnap.engine.applying import apply
from coldsnap.engine.events import Kind
from coldsnap.engine.history import State
from coldsnap.engine.journal import Journal, verify
from coldsnap.engine.outcome import RunState
from coldsnap.engine.preview import InstanceKey
from coldsnap.engine.rolling_back import rollback
from coldsnap.engine.runs import Runs
from coldsnap.engine.setup import Limits
from coldsnap.sdk import Unit


def test_chain_on_two_hosts_is_done_in_order_and_journalled(world: World) -> None:
    result = apply(world.setup(node("a"), node("b", needs=["a"]), node("c", needs=["b"])))
    assert (result.state, result.exit_code) == (RunState.SUCCEEDED, 0)
    assert (result.changed, result.unchanged, result.failed) == (6, 0, 0)
    for host in world.hosts:
        assert world.state(host) == {"a": "v-a", "b": "v-b", "c": "v-c"}
        assert [entry[1] for entry in world.log(host)] == ["a", "b", "c"]
    found = verify(Runs(world.folder).find("latest").journal)
    assert found.intact
    assert [r.kind for r in found.records[:1]] == ["run.header"]
    assert found.records[-1].kind == "run.closed"
    own = [
        r.kind
        for r in found.records
        if r.body.get("key") == {"step": "b", "host": "a-1", "unit": ""}
    ]
    assert own == ["step.observed", "step.changing", "step.done"]


def test_second_apply_has_nothing_to_do(world: World) -> None:
    apply(world.setup(node("a"), node("b", needs=["a"])))
    result = apply(world.setup(node("a"), node("b", needs=["a"])))
    assert result.exit_code == 0
    assert (result.changed, result.unchanged) == (0, 4)
    assert len(world.log("a-1")) == 2


def test_outputs_reach_the_steps_that_need_them(world: World) -> None:
    result = apply(
        world.setup(node("a"), node("b", needs=["a"], value="{{ steps.a.outputs.value }}+"))
    )
    assert world.state("a-2")["b"] == "v-a+"
    assert result.outputs["b"][0]["outputs"] == {"value": "v-a+", "was": None}


def test_independent_instances_run_at_the_same_time(world: World) -> None:
    apply(world.setup(node("a", seconds=0.4), node("b", seconds=0.4)))
    kinds = [e.kind for e in world.events if e.kind in (Kind.STEP_STARTED, Kind.STEP_DONE)]
    assert kinds[:4] == [Kind.STEP_STARTED] * 4, "all of both hosts before the first is done"


def test_limits_per_host_and_overall(world: World) -> None:
    steps = [node(f"s{number}", seconds=0.15) for number in range(4)]
    active: list[int] = []
    running: set[object] = set()
    lock = threading.Lock()

    def watch(event: object) -> None:
        with lock:
            if event.kind is Kind.STEP_STARTED:
                running.add(event.key)
                active.append(sum(1 for key in running if key.host == event.key.host))
            elif event.kind is Kind.STEP_DONE:
                running.discard(event.key)

    world.on_event = watch
    apply(world.setup(*steps, limits=Limits(per_host=2, overall=3)))
    assert max(active) == 2


def test_units_are_placed_on_the_hosts_of_their_selector(world: World) -> None:
    units = [Unit(id="u0", hosts="all"), Unit(id="u1", hosts="a-2")]
    setup = world.setup(node("a", "t.unit"), node("b", "t.unit", ["a"], hosts="a-1"), units=units)
    result = apply(setup)
    assert world.state("a-1") == {"a.u0": "v-a", "b.u0": "v-b"}
    assert world.state("a-2") == {"a.u0": "v-a", "a.u1": "v-a"}
    assert result.changed == 4
    jobs = [entry[2] for entry in world.log("a-2")]
    assert sorted(jobs) == [f"{result.run}.a.u0", f"{result.run}.a.u1"]


def test_step_that_would_run_nowhere_is_refused(world: World) -> None:
    with pytest.raises(ColdSnapError) as caught:
        apply(world.setup(node("a", "t.unit")))
    assert caught.value.code == "plan.no-place"
    units = [Unit(id="u0", hosts="a-1")]
    with pytest.raises(ColdSnapError) as caught:
        apply(world.setup(node("a", "t.unit", hosts="a-2"), units=units))
    assert "a-2" in caught.value.cause


def test_when_false_is_skipped_and_what_needs_it_goes_on(world: World) -> None:
    result = apply(world.setup(node("a", when="host.name == 'a-1'"), node("b", needs=["a"])))
    assert result.exit_code == 0
    assert world.state("a-1") == {"a": "v-a", "b": "v-b"}
    assert world.state("a-2") == {"b": "v-b"}
    skipped = world.said(Kind.STEP_SKIPPED)
    assert [str(event.key) for event in skipped] == ["a/a-2"]


def test_failure_recovers_everything_that_was_changed(world: World) -> None:
    world.set("a-1", a="old")
    result = apply(
        world.setup(node("a"), node("b", needs=["a"]), node("c", needs=["b"], fail=9, hosts="a-1"))
    )
    assert (result.state, result.exit_code) == (RunState.RECOVERED, 1)
    assert world.state("a-1") == {"a": "old"}
    assert world.state("a-2") == {}
    assert (result.changed, result.failed, result.recovered) == (0, 1, 5)
    undone = [entry[1] for entry in world.log("a-1") if entry[0] == "fake:unset"]
    assert undone == ["c", "b", "a"]
    assert [error.code for error in result.errors] == ["test.failed"]


def test_failure_before_any_change_is_exit_1(world: World) -> None:
    result = apply(world.setup(node("a", refuse=True), node("b", needs=["a"])))
    assert (result.state, result.exit_code) == (RunState.FAILED, 1)
    assert world.log("a-1") == []


def test_stop_leaves_everything_as_it_is(world: World) -> None:
    result = apply(
        world.setup(
            node("a"), node("b", needs=["a"], fail=9, on_failure="stop"), node("c", needs=["b"])
        )
    )
    assert (result.state, result.exit_code) == (RunState.PARTIAL, 3)
    assert world.state("a-1")["a"] == "v-a"
    assert "c" not in world.state("a-1")


def test_continue_skips_what_needs_it_and_reports_the_cause_once(world: World) -> None:
    result = apply(
        world.setup(
            node("a", fail=9, on_failure="continue", hosts="a-1"),
            node("b", needs=["a"]),
            node("c", needs=["b"]),
            node("free"),
        )
    )
    assert (result.state, result.exit_code) == (RunState.PARTIAL, 3)
    assert [error.where for error in result.errors] == ["a-1"]
    blocked = [e for e in world.said(Kind.STEP_SKIPPED) if e.state == "blocked"]
    assert world.state("a-1") == {"free": "v-free"}
    # b on a-2 shares no host with a, so it needs a on a-1, which failed.
    assert world.state("a-2") == {"free": "v-free"}
    assert {event.message for event in blocked} == {"needs a/a-1, which failed"}
    assert len(blocked) == 4


def test_irreversible_step_makes_a_failed_run_partial(world: World) -> None:
    result = apply(world.setup(node("a", "t.forever"), node("b", needs=["a"], fail=9)))
    assert (result.state, result.exit_code) == (RunState.PARTIAL, 3)
    assert world.state("a-1") == {"a": "v-a"}
    assert any("cannot be undone" in event.message for event in world.said(Kind.STEP_SKIPPED))


def test_retry_with_backoff_until_it_works(world: World) -> None:
    result = apply(world.setup(node("a", fail=2, retry=fast_retry(3), hosts="a-1")))
    assert result.exit_code == 0
    retries = world.said(Kind.STEP_RETRY)
    assert [event.attempt for event in retries] == [1, 2]
    assert retries[0].error is not None
    assert world.last().instances[InstanceKey("a", "a-1")].attempts == 3


def test_retries_end(world: World) -> None:
    result = apply(world.setup(node("a", fail=9, retry=fast_retry(3), hosts="a-1")))
    assert result.exit_code == 1
    assert len(world.said(Kind.STEP_RETRY)) == 2


def test_timeout_ends_the_operation_on_the_host(world: World) -> None:
    started = time.monotonic()
    result = apply(world.setup(node("a", seconds=30, timeout=0.2, hosts="a-1")))
    assert time.monotonic() - started < 20, "not the whole sleep"
    assert result.errors[0].code == "host.timeout"
    assert result.state is RunState.RECOVERED


def test_step_that_hangs_outside_of_any_host_is_given_up(world: World) -> None:
    started = time.monotonic()
    result = apply(world.setup(node("a", "t.run", seconds=60, timeout=0.1)))
    assert time.monotonic() - started < 40, "nobody waits for it"
    assert result.errors[0].code == "step.timeout"
    assert "given up" in result.errors[0].message


def test_crash_of_a_step_is_one_line_and_a_log(world: World) -> None:
    result = apply(world.setup(node("a", crash=True, hosts="a-1")))
    error = result.errors[0]
    assert error.code == "internal.step-crashed"
    assert error.details[0] == "ValueError: boom"
    log = Runs(world.folder).find("latest").path / "crashes.log"
    assert "Traceback" in log.read_text()


def test_unreachable_host_is_refused_before_anything_changes(world: World) -> None:
    world.fleet.down = {"a-2"}
    with pytest.raises(ColdSnapError) as caught:
        apply(world.setup(node("a")))
    assert caught.value.code == "host.unreachable"
    assert caught.value.where == "a-2"
    assert world.log("a-1") == []
    assert Runs(world.folder).ids() == []


def test_unreachable_host_of_continue_steps_does_not_stop_the_others(world: World) -> None:
    world.fleet.down = {"a-2"}
    result = apply(world.setup(node("a", on_failure="continue")))
    assert result.exit_code == 3
    assert world.state("a-1") == {"a": "v-a"}
    assert [error.where for error in result.errors] == ["a-2"]


def test_only_declared_outputs_are_kept(world: World) -> None:
    apply(world.setup(node("a", hosts="a-1")))
    assert set(world.last().instances[InstanceKey("a", "a-1")].outputs) == {"value", "was"}


def test_slice_applies_only_what_was_chosen(world: World) -> None:
    world.set("a-1", a="v-a")
    world.set("a-2", a="v-a")
    steps = [
        node("a"),
        node("b", needs=["a"], value="{{ steps.a.outputs.value }}!"),
        node("c", needs=["b"]),
    ]
    result = apply(world.setup(*steps, selected=frozenset({"b"})))
    assert result.exit_code == 0
    assert world.state("a-1") == {"a": "v-a", "b": "v-a!"}
    assert (result.changed, result.skipped) == (2, 4)


def test_output_of_an_undone_step_outside_the_slice_is_a_clear_error(world: World) -> None:
    steps = [node("a"), node("b", needs=["a"], value="{{ steps.a.outputs.value }}!")]
    result = apply(world.setup(*steps, selected=frozenset({"b"})))
    assert result.exit_code == 1
    assert result.errors[0].code == "plan.output-missing"


def test_long_steps_send_heartbeats(world: World) -> None:
    apply(world.setup(node("a", "t.run", seconds=0.8)))
    beats = [event for event in world.said(Kind.STEP_PROGRESS) if event.state == "heartbeat"]
    assert len(beats) >= 2
    assert beats[0].seconds is not None
    assert beats[0].seconds >= 0.2


def test_progress_of_operations_reaches_the_watcher(world: World) -> None:
    apply(world.setup(node("a", hosts="a-1")))
    progress = [e for e in world.said(Kind.STEP_PROGRESS) if e.state == "progress"]
    assert [(e.message, e.done, e.total) for e in progress] == [("moving", 1, 2)]


def test_watcher_that_raises_does_not_stop_the_run(world: World) -> None:
    def raising(_event: object) -> None:
        raise RuntimeError("no screen")

    world.on_event = raising
    assert apply(world.setup(node("a"))).exit_code == 0


def test_facts_of_an_instance_are_asked_in_one_round_trip(world: World) -> None:
    apply(world.setup(node("a", hosts="a-1")))
    assert world.fleet.host("a-1").trips == 1


def test_history_of_a_finished_run(world: World) -> None:
    world.set("a-1", a="v-a")
    apply(world.setup(node("a"), node("b", needs=["a"])))
    history = world.last()
    assert history.closed
    assert history.state == "succeeded"
    assert history.instances[InstanceKey("a", "a-1")].state is State.UNCHANGED
    assert history.instances[InstanceKey("b", "a-1")].state is State.DONE
    touched = [(item.key.host, item.key.step) for item in history.touched()]
    # Newest first on each host; one host need not wait for the other.
    assert [step for host, step in touched if host == "a-1"] == ["b"]
    assert [step for host, step in touched if host == "a-2"] == ["b", "a"]
    assert len(touched) == 3


def test_nothing_to_do_costs_one_round_trip_per_host(world: World) -> None:
    steps = [node("a"), *(node(f"s{number}", needs=["a"]) for number in range(5))]
    apply(world.setup(*steps))
    trips = world.fleet.host("a-1").trips
    assert apply(world.setup(*steps)).changed == 0
    assert world.fleet.host("a-1").trips == trips + 1


def test_facts_that_lay_around_are_asked_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # b looks after a ran for longer than fetched facts may be used, on a host a does not change.
    monkeypatch.setattr(freshness, "SECONDS", 0.1)
    world.set("a-2", b="v-b")

    def on_event(event: object) -> None:
        if event.kind is Kind.STEP_STARTED and event.key.step == "a":
            world.set("a-2", b="changed meanwhile")

    world.on_event = on_event
    steps = [node("a", hosts="a-1", seconds=0.4), node("b", needs=["a"], hosts="a-2")]
    assert apply(world.setup(*steps)).changed == 2
    assert world.state("a-2") == {"b": "v-b"}


@pytest.mark.parametrize("after", range(2, 14))
def test_journal_that_cannot_be_written_stops_the_run_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    one = World(world.folder, ("a-1",))
    real, written = Journal.append, []

    def append(self: Journal, kind: str, body: object) -> object:
        written.append(kind)
        if len(written) >= after:
            raise ColdSnapError("file.disk-full", "no space left")
        return real(self, kind, body)

    monkeypatch.setattr(Journal, "append", append)
    steps = [node("a"), node("b", needs=["a"]), node("c", needs=["b"], fail=1)]
    result = apply(one.setup(*steps))
    monkeypatch.undo()
    codes = {error.code for error in result.errors}
    assert "journal.unwritable" in codes
    assert result.exit_code in (1, 3)
    # Nothing was changed that the journal does not know, and what it knows can be put back.
    run = Runs(one.folder).find("latest")
    changed = {str(item.key) for item in one.last().touched()}
    assert {f"{key}/a-1" for key in one.state("a-1")} <= changed
    assert rollback(one.setup(*steps), run).exit_code == 0
    assert one.state("a-1") == {}
