from __future__ import annotations

import time

import pytest
from engine_world import World, node
from hypothesis import given
from hypothesis import strategies as st

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.applying import apply
from coldsnap.engine.outcome import (
    RunState,
    exit_code_of,
    exit_code_of_error,
    root_causes,
    state_of,
)
from coldsnap.engine.recorded import stored_plan
from coldsnap.engine.resuming import resume
from coldsnap.engine.runs import Runs, new_id


@given(st.lists(st.floats(0, 4e9), min_size=2, max_size=20))
def test_run_ids_sort_by_time(times: list[float]) -> None:
    ids = [new_id(moment) for moment in sorted(times)]
    stamps = [run_id[:10] for run_id in ids]
    assert stamps == sorted(stamps)
    assert all(len(run_id) == 26 for run_id in ids)


def test_run_ids_differ() -> None:
    now = time.time()
    assert len({new_id(now) for _ in range(1000)}) == 1000


def test_latest_points_to_the_newest_run(world: World) -> None:
    first = apply(world.setup(node("a")))
    second = apply(world.setup(node("a")))
    runs = Runs(world.folder)
    assert str((runs.root / "latest").readlink()) == second.run
    assert runs.find("latest").id == second.run
    assert runs.ids() == [first.run, second.run]
    assert runs.find(first.run).id == first.run
    assert runs.find(second.run[:20].lower() + second.run[20:]).id == second.run


def test_unknown_and_ambiguous_names(world: World) -> None:
    runs = Runs(world.folder)
    for name in ("latest", "01X", "", "../../etc"):
        with pytest.raises(ColdSnapError) as caught:
            runs.find(name)
        assert caught.value.code == "run.unknown"
    apply(world.setup(node("a")))
    apply(world.setup(node("a")))
    with pytest.raises(ColdSnapError) as caught:
        runs.find("0")
    assert caught.value.code == "run.ambiguous"


def test_summaries_newest_first_with_a_damaged_one(world: World) -> None:
    first = apply(world.setup(node("a")))
    apply(world.setup(node("a", fail=1)))
    runs = Runs(world.folder)
    folder = runs.find(first.run)
    folder.journal.write_bytes(folder.journal.read_bytes()[1:])
    newest, oldest = runs.summaries()
    assert (newest.state, newest.history.exit_code) == ("succeeded", 0)
    assert oldest.state == "damaged"
    assert oldest.fault.code == "journal.tampered"


def test_run_folder_is_private(world: World) -> None:
    apply(world.setup(node("a")))
    folder = Runs(world.folder).find("latest")
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert folder.journal.stat().st_mode & 0o777 == 0o600


def test_project_that_cannot_be_written(world: World) -> None:
    (world.folder / ".coldsnap").write_text("in the way")
    with pytest.raises(ColdSnapError) as caught:
        apply(world.setup(node("a")))
    assert caught.value.code.startswith("file.")
    assert world.log("a-1") == []


@pytest.mark.parametrize(
    ("facts", "state", "code"),
    [
        ({}, RunState.SUCCEEDED, 0),
        ({"changed": True}, RunState.SUCCEEDED, 0),
        ({"failed": True}, RunState.FAILED, 1),
        ({"failed": True, "recovered": True}, RunState.RECOVERED, 1),
        ({"failed": True, "changed": True}, RunState.PARTIAL, 3),
        ({"failed": True, "changed": True, "recovered": True}, RunState.PARTIAL, 3),
        ({"cancelled": True, "changed": True}, RunState.CANCELLED, 130),
        ({"cancelled": True, "failed": True}, RunState.CANCELLED, 130),
    ],
)
def test_exit_codes(facts: dict[str, bool], state: RunState, code: int) -> None:
    none = dict.fromkeys(("failed", "cancelled", "changed", "recovered"), False)
    assert state_of(**{**none, **facts}) is state
    assert exit_code_of(state) == code


def test_exit_codes_of_errors() -> None:
    assert exit_code_of(RunState.CANCELLED, 143) == 143
    assert exit_code_of_error(ColdSnapError("plan.stale", "x")) == 4
    assert exit_code_of_error(ColdSnapError("run.cancelled", "x")) == 130
    assert exit_code_of_error(ColdSnapError("x.y", "x")) == 1
    assert exit_code_of_error(ColdSnapError("x.y", "x", changed=True)) == 3


def test_causes_are_reported_once() -> None:
    one = ColdSnapError("a.b", "m", "h")
    waited = ColdSnapError("barrier.aborted", "left", "g")
    assert root_causes([one, waited, ColdSnapError("a.b", "m", "h")]) == (one,)
    assert root_causes([waited]) == (waited,)


def test_run_that_was_killed_before_it_began(world: World) -> None:
    runs = Runs(world.folder)
    folder = runs.create()
    assert runs.summary(folder).state == "interrupted"
    for content in (None, b"", b'{"kind":"run.hea'):
        if content is not None:
            folder.journal.write_bytes(content)
        for call in (stored_plan, lambda found: resume(world.setup(node("a")), found)):
            with pytest.raises(ColdSnapError) as caught:
                call(folder)
            assert caught.value.code == "run.empty"
        if content:
            folder.journal.write_bytes(content)
        assert runs.summary(folder).state == "interrupted"
