from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from engine_world import FakeFleet, World, node

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.applying import apply
from coldsnap.engine.outcome import exit_code_of_error, exit_code_of_preview
from coldsnap.engine.preview import InstanceKey, Preview
from coldsnap.engine.saved import is_saved_plan, load_plan_file, save_plan
from coldsnap.engine.surveying import preview
from coldsnap.sdk import Action, RuntimeRef, Unit


def actions(found: Preview) -> dict[str, str]:
    return {
        str(item.key): item.change.action.value if item.change else item.skipped or "error"
        for item in found.instances
    }


def test_changes_nothing_and_says_what_would_change(world: World) -> None:
    world.set("a-1", a="v-a")
    world.set("a-2", a="old")
    found = preview(world.setup(node("a"), node("b", "t.pause", ["a"])))
    assert actions(found) == {
        "a/a-1": "none",
        "a/a-2": "change",
        "b/a-1": "create",
        "b/a-2": "create",
    }
    assert [str(item.key) for item in found.pausing] == ["b/a-1", "b/a-2"]
    assert found.is_pending
    assert world.log("a-1") == []
    assert not (world.folder / ".coldsnap").exists()


def test_one_round_trip_per_host_for_all_instances(world: World) -> None:
    steps = [node("a"), *(node(f"s{number}", needs=["a"]) for number in range(6))]
    preview(world.setup(*steps))
    assert world.fleet.prefetches == [{"a-1": 14, "a-2": 14}]
    assert world.fleet.host("a-1").trips == 1


def test_outputs_of_unchanged_steps_are_known_and_of_others_not(world: World) -> None:
    world.set("a-1", a="v-a")
    found = preview(
        world.setup(node("a"), node("b", needs=["a"], value="{{ steps.a.outputs.value }}+"))
    )
    by_key = {item.key: item for item in found.instances}
    known, unknown = by_key[InstanceKey("b", "a-1")], by_key[InstanceKey("b", "a-2")]
    assert known.change is not None
    assert known.change.action is Action.CREATE
    assert known.change.rows[0].detail == "v-a+"
    assert unknown.change is not None
    assert unknown.change.action is Action.UNKNOWN
    assert unknown.change.rows[0].detail == "(known after apply)"
    assert unknown.error is None
    # What becomes known on the way is asked in one more round, not one by one.
    assert [set(trip) for trip in world.fleet.prefetches] == [{"a-1", "a-2"}, {"a-1"}]


def test_unreachable_host_is_reported_and_the_others_are_looked_at(world: World) -> None:
    world.fleet.down = {"a-2"}
    found = preview(world.setup(node("a")))
    assert actions(found) == {"a/a-1": "create", "a/a-2": "host unreachable"}
    assert found.unreachable["a-2"].code == "host.unreachable"
    assert exit_code_of_preview(found) == 1


def test_all_refusals_are_collected(world: World) -> None:
    found = preview(world.setup(node("a", refuse=True), node("b", refuse=True), node("c")))
    assert [error.code for error in found.errors] == ["test.refused"] * 4
    assert {error.where for error in found.errors} == {"a-1", "a-2"}
    assert actions(found)["c/a-1"] == "create"


def test_step_that_performs_while_observing_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine_world import Set  # noqa: PLC0415

    monkeypatch.setattr(
        Set, "observe", lambda self, spec, ctx: self.recover(spec, {"value": 1}, ctx)
    )
    found = preview(world.setup(node("a", hosts="a-1")))
    assert found.errors[0].code == "internal.change-in-preview"
    assert world.log("a-1") == []


def test_order_is_topological_then_host_then_unit(world: World) -> None:
    units = [Unit(id="u1", hosts="all"), Unit(id="u0", hosts="a-2")]
    found = preview(
        world.setup(node("z"), node("a", "t.unit", ["z"]), node("run", "t.run", ["a"]), units=units)
    )
    assert [str(item.key) for item in found.instances] == [
        "z/a-1",
        "z/a-2",
        "a/a-1/u1",
        "a/a-2/u1",
        "a/a-2/u0",
        "run",
    ]


def test_when_and_slices_are_said(world: World) -> None:
    found = preview(
        world.setup(node("a", when="host.name == 'a-1'"), node("b"), selected=frozenset({"a"}))
    )
    assert actions(found)["a/a-2"] == "when is false"
    assert actions(found)["b/a-1"] == "not in the slice"


def test_detailed_exit_code(world: World) -> None:
    setup = world.setup(node("a"))
    assert exit_code_of_preview(preview(setup)) == 0
    assert exit_code_of_preview(preview(setup), detailed=True) == 2
    apply(setup)
    assert exit_code_of_preview(preview(setup), detailed=True) == 0


# --- saved plans


def saved_of(world: World, *steps: object) -> tuple[object, Path]:
    path = world.folder / "saved.plan"
    setup = world.setup(*steps)
    return save_plan(setup, preview(setup), path), path


def test_saved_plan_is_applied_when_nothing_changed(world: World) -> None:
    steps = [node("a"), node("b", needs=["a"])]
    _, path = saved_of(world, *steps)
    assert is_saved_plan(path)
    saved = load_plan_file(path)
    assert saved.plan["text"] == "coldsnap: plan/v1\n"
    assert [str(i.key) for i in saved.preview.instances] == ["a/a-1", "a/a-2", "b/a-1", "b/a-2"]
    result = apply(world.setup(*steps), saved)
    assert result.exit_code == 0
    assert world.last().header["saved_plan"] == saved.sha256


def test_stale_plan_is_refused_and_says_what_changed(world: World) -> None:
    saved, _ = saved_of(world, node("a"), node("b", needs=["a"]))
    world.set("a-2", a="v-a")
    world.set("a-1", b="something")
    with pytest.raises(ColdSnapError) as caught:
        apply(world.setup(node("a"), node("b", needs=["a"])), saved)
    assert caught.value.code == "plan.stale"
    assert exit_code_of_error(caught.value) == 4
    assert caught.value.details == (
        "a/a-2: was create (set a), is none (set already)",
        "b/a-1: was create (set b), is change (set b)",
    )
    assert world.log("a-1") == []


def test_change_that_only_the_digest_shows_is_stale(world: World) -> None:
    world.set("a-1", a="x")
    saved, _ = saved_of(world, node("a"))
    world.set("a-1", a="y")
    with pytest.raises(ColdSnapError) as caught:
        apply(world.setup(node("a")), saved)
    assert caught.value.details == ("a/a-1: what was observed changed",)


def test_other_inventory_runtime_or_lost_host_is_stale(world: World) -> None:
    saved, _ = saved_of(world, node("a"))
    bigger = FakeFleet(world.machines, ["a-1", "a-2", "a-3"])
    runtime = RuntimeRef("sha256:00", "x", "sha256:00", 1)
    bigger.down = {"a-2"}
    setup = dataclasses.replace(world.setup(node("a")), fleet=bigger, runtime=runtime)
    with pytest.raises(ColdSnapError) as caught:
        apply(setup, saved)
    text = "\n".join(caught.value.details)
    assert "inventory inventories/fake.yaml changed" in text
    assert "runtime pack was None, is sha256:00" in text
    assert "a/a-3: was not part of it" in text
    assert "a-2: no route to host" in text


def test_preview_with_errors_is_not_saved(world: World) -> None:
    setup = world.setup(node("a", refuse=True))
    with pytest.raises(ColdSnapError) as caught:
        save_plan(setup, preview(setup), world.folder / "x")
    assert caught.value.code == "plan.has-errors"
    assert not (world.folder / "x").exists()


def test_edited_saved_plan_is_refused(world: World) -> None:
    _, path = saved_of(world, node("a"))
    path.write_text(path.read_text().replace("v-a", "v-b"))
    with pytest.raises(ColdSnapError) as caught:
        load_plan_file(path)
    assert caught.value.code == "plan.saved-damaged"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"coldsnap":"plan/v1"}', "{" * 9999, "\0"])
def test_anything_else_is_no_saved_plan(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(ColdSnapError) as caught:
        load_plan_file(tmp_path / "x")
    assert caught.value.code == "plan.not-saved"


def test_saved_plan_with_a_right_digest_and_wrong_fields_is_refused(tmp_path: Path) -> None:
    from coldsnap.artifact import canonical  # noqa: PLC0415

    body = {"coldsnap": "saved-plan/v1", "plan": [], "instances": 3}
    body["sha256"] = canonical.digest(body)
    (tmp_path / "x").write_text(json.dumps(body))
    with pytest.raises(ColdSnapError) as caught:
        load_plan_file(tmp_path / "x")
    assert caught.value.code == "plan.saved-damaged"
