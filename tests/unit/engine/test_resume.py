from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from engine_world import FakeFleet, Set, World, node

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.applying import apply
from coldsnap.engine.events import Kind
from coldsnap.engine.outcome import RunState
from coldsnap.engine.recorded import stored_plan
from coldsnap.engine.resuming import resume
from coldsnap.engine.rolling_back import rollback
from coldsnap.engine.runs import Runs
from coldsnap.sdk import RuntimeRef


def failing(world: World) -> object:
    return world.setup(
        node("a"),
        node("b", needs=["a"], fail=1, on_failure="stop", hosts="a-1"),
        node("c", needs=["b"]),
    )


def latest(world: World) -> object:
    return Runs(world.folder).find("latest")


def test_resume_goes_on_after_the_last_good_step(world: World) -> None:
    first = apply(failing(world))
    assert first.state is RunState.PARTIAL
    before = len(world.log("a-1"))
    result = resume(failing(world), latest(world))
    assert (result.run, result.state, result.exit_code) == (first.run, RunState.SUCCEEDED, 0)
    assert [entry[1] for entry in world.log("a-1")[before:]] == ["b", "c"]


def test_done_steps_that_nobody_needs_any_more_are_not_even_observed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [
        node("a"),
        node("b", needs=["a"]),
        node("c", needs=["b"], fail=2, on_failure="stop", hosts="a-1"),
    ]
    apply(world.setup(*steps))
    observed: list[str] = []
    real = Set.observe

    def observe(self: Set, spec: object, ctx: object) -> object:
        observed.append(f"{ctx.step}/{ctx.where}")
        return real(self, spec, ctx)

    monkeypatch.setattr(Set, "observe", observe)
    resume(world.setup(*steps), latest(world))
    assert sorted(observed) == ["b/a-1", "c/a-1"]


def test_done_step_whose_effect_is_gone_is_done_again_as_another_job(world: World) -> None:
    first = apply(failing(world))
    world.set("a-1", a=None)  # the host was rebuilt, say
    result = resume(failing(world), latest(world))
    assert result.exit_code == 0
    assert world.state("a-1")["a"] == "v-a"
    jobs = [job for _op, key, job in world.log("a-1") if key == "a"]
    assert jobs == [f"{first.run}.a", f"{first.run}.a.again1"]


def test_needs_of_what_is_done_again_are_looked_at_too(world: World) -> None:
    # a stands below b, b below c; the host lost everything (a reboot), and c still has to come.
    steps = [
        node("a"),
        node("b", needs=["a"]),
        node("c", needs=["b"], fail=1, on_failure="stop"),
    ]
    one = World(world.folder, ("a-1",))
    apply(one.setup(*steps))
    one.set("a-1", a=None, b=None)
    before = len(one.log("a-1"))
    assert resume(one.setup(*steps), latest(one)).exit_code == 0
    assert [entry[1] for entry in one.log("a-1")[before:]] == ["a", "b", "c"]


def test_step_may_say_itself_that_its_effect_stands(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(failing(world))
    world.set("a-1", a="changed by somebody")
    monkeypatch.setattr(Set, "stands", lambda *_args: True)
    before = len(world.log("a-1"))
    assert resume(failing(world), latest(world)).exit_code == 0
    assert [entry[1] for entry in world.log("a-1")[before:]] == ["b", "c"]


def test_recovered_run_can_be_resumed(world: World) -> None:
    steps = [node("a"), node("b", needs=["a"], fail=2)]
    assert apply(world.setup(*steps)).state is RunState.RECOVERED
    assert world.state("a-1") == {}
    Set.failures.clear()
    for name in ("a-1", "a-2"):
        Set.failures[f"{Runs(world.folder).ids()[0]}.b.{name}"] = 2
    assert resume(world.setup(*steps), latest(world)).exit_code == 0
    assert world.state("a-1") == {"a": "v-a", "b": "v-b"}


def test_finished_run_can_be_neither_resumed_nor_rolled_back(world: World) -> None:
    apply(world.setup(node("a")))
    for verb in (resume, rollback):
        with pytest.raises(ColdSnapError) as caught:
            verb(world.setup(node("a")), latest(world))
        assert caught.value.code == "run.finished"
    assert world.state("a-1") == {"a": "v-a"}


def test_rolled_back_run_cannot_be_resumed(world: World) -> None:
    apply(failing(world))
    assert rollback(failing(world), latest(world)).state is RunState.ROLLED_BACK
    with pytest.raises(ColdSnapError) as caught:
        resume(failing(world), latest(world))
    assert caught.value.code == "run.rolled-back"


def test_rollback_puts_back_what_was_there_before_the_run(world: World) -> None:
    world.set("a-1", a="old", b="older")
    apply(failing(world))
    result = rollback(failing(world), latest(world))
    assert (result.exit_code, result.changed) == (0, 0)
    assert world.state("a-1") == {"a": "old", "b": "older"}
    assert world.state("a-2") == {}
    undone = [entry[1] for entry in world.log("a-1") if entry[0] == "fake:unset"]
    assert undone == ["b", "a"]


def test_rollback_after_a_resume_puts_back_what_was_there_before_the_first_apply(
    world: World,
) -> None:
    world.set("a-1", a="old")
    steps = [node("a"), node("b", needs=["a"], fail=9, on_failure="stop", hosts="a-1")]
    apply(world.setup(*steps))
    world.set("a-1", a="somebody else")
    resume(world.setup(*steps), latest(world))
    rollback(world.setup(*steps), latest(world))
    assert world.state("a-1") == {"a": "old"}


def test_rollback_says_what_cannot_be_undone_and_goes_on(world: World) -> None:
    steps = [
        node("a"),
        node("f", "t.forever", ["a"]),
        node("z", needs=["f"], fail=9, on_failure="stop"),
    ]
    apply(world.setup(*steps))
    result = rollback(world.setup(*steps), latest(world))
    assert result.state is RunState.ROLLED_BACK
    assert world.state("a-1") == {"f": "v-f"}
    assert "cannot be undone" in world.said(Kind.STEP_SKIPPED)[-1].message


def test_rollback_of_an_unreachable_host_can_be_tried_again(world: World) -> None:
    # The barrier sees to it that both hosts were changed when b fails.
    steps = [
        node("a"),
        node("m", "t.meet", ["a"]),
        node("b", needs=["m"], fail=1, on_failure="stop", hosts="a-1"),
    ]
    apply(world.setup(*steps))
    world.fleet.down = {"a-2"}
    first = rollback(world.setup(*steps), latest(world))
    assert (first.state, first.exit_code) == (RunState.PARTIAL, 3)
    assert [error.code for error in first.errors] == ["host.unreachable"]
    assert (world.state("a-1"), world.state("a-2")) == ({}, {"a": "v-a"})
    world.fleet.down = set()
    assert rollback(world.setup(*steps), latest(world)).exit_code == 0
    assert world.state("a-2") == {}


def test_another_plan_does_not_resume_a_run(world: World) -> None:
    apply(failing(world))
    with pytest.raises(ColdSnapError) as caught:
        resume(world.setup(node("a"), node("b", needs=["a"])), latest(world))
    assert caught.value.code == "run.differs"


def test_inventory_without_the_host_does_not_resume_a_run(world: World, tmp_path: Path) -> None:
    apply(failing(world))
    smaller = dataclasses.replace(failing(world), fleet=FakeFleet(world.machines, ["a-1"]))
    with pytest.raises(ColdSnapError) as caught:
        resume(smaller, latest(world))
    assert caught.value.code == "run.differs"
    assert any("a-2" in line for line in caught.value.details)


def test_tampered_journal_is_not_resumed(world: World) -> None:
    apply(failing(world))
    run = latest(world)
    run.journal.write_bytes(run.journal.read_bytes().replace(b'"v-a"', b'"v-x"', 1))
    with pytest.raises(ColdSnapError) as caught:
        resume(failing(world), run)
    assert caught.value.code == "journal.tampered"
    assert Runs(world.folder).summary(run).state == "damaged"


def test_run_that_is_worked_on_is_busy(world: World) -> None:
    apply(failing(world))
    run = latest(world)
    with run.locked():
        assert Runs(world.folder).summary(run).state == "running"
        with pytest.raises(ColdSnapError) as caught:
            resume(failing(world), run)
    assert caught.value.code == "run.busy"


def test_journal_keeps_all_that_a_resume_needs(world: World) -> None:
    apply(failing(world))
    header = stored_plan(latest(world))
    assert header["plan"]["text"] == "coldsnap: plan/v1\n"
    assert header["inventory"]["path"] == "inventories/fake.yaml"
    assert header["hosts"] == ["a-1", "a-2"]


def test_slice_is_kept_by_resume(world: World) -> None:
    steps = [node("a", fail=1, on_failure="stop", hosts="a-1"), node("b")]
    apply(world.setup(*steps, selected=frozenset({"a"})))
    resume(world.setup(*steps), latest(world))
    assert world.state("a-1") == {"a": "v-a"}


def test_run_goes_on_with_the_runtime_pack_that_it_staged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    real = Set.recover

    def recover(self: Set, spec: object, before: object, ctx: object) -> None:
        seen.append(ctx.runtime.digest)
        real(self, spec, before, ctx)

    monkeypatch.setattr(Set, "recover", recover)
    old, new = (RuntimeRef(f"sha256:{d}", f"{d}.tar", f"sha256:{d}", 1) for d in ("old", "new"))
    apply(dataclasses.replace(failing(world), runtime=old))
    result = rollback(dataclasses.replace(failing(world), runtime=new), latest(world))
    assert result.exit_code == 0
    assert set(seen) == {"sha256:old"}
