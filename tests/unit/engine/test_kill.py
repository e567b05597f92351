"""`kill -9` of a real process at every phase of a step, then resume or rollback."""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
from pathlib import Path

import kill_child
import pytest
from engine_world import World

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.history import fold
from coldsnap.engine.journal import verify
from coldsnap.engine.recorded import stored_plan
from coldsnap.engine.runs import Runs

DONE = {"a": "v-a", "b": "v-a+b", "c": "v-a+b+c", "old": "kept"}
FORWARD = [
    f"{phase}:{step}"
    for step in ("a", "b", "c")
    for phase in (
        "observe",
        "diff",
        "step-observed",
        "step-started",
        "apply",
        "applied",
        "step-done",
    )
]


def started(folder: Path, verb: str, kill_at: str = "", seconds: float = 0.0) -> int:
    """The pid of a forked child: it has everything imported, so hundreds of them are cheap."""
    pid = os.fork()
    if pid == 0:
        try:
            kill_child.run(folder, verb, kill_at, seconds)
        except SystemExit as end:
            os._exit(int(end.code or 0))
        except BaseException:  # noqa: BLE001 - a forked child must never come back here
            (folder / "crash").write_text(traceback.format_exc())
            os._exit(99)
    return pid


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def child(folder: Path, verb: str, kill_at: str = "", seconds: float = 0.0) -> int:
    code = ended(started(folder, verb, kill_at, seconds))
    assert code in (0, 1, 3, -signal.SIGKILL), (folder / "crash").read_text()
    return code


@pytest.fixture
def before(tmp_path: Path) -> World:
    world = World(tmp_path, ("a-1",))
    world.set("a-1", old="kept")
    return world


@pytest.mark.parametrize("place", FORWARD)
def test_killed_then_resumed(before: World, place: str) -> None:
    assert child(before.folder, "apply", place) == -signal.SIGKILL
    run = Runs(before.folder).find("latest")
    assert Runs(before.folder).summary(run).state == "interrupted"
    assert child(before.folder, "resume") == 0
    assert before.state("a-1") == DONE
    found = verify(run.journal)
    assert found.intact
    history = fold(found.records)
    assert (history.state, history.resumes) == ("succeeded", 1)
    # The same job each time: a runtime job is found again, never doubled.
    jobs: dict[str, set[str]] = {}
    for _operation, key, job in before.log("a-1"):
        jobs.setdefault(key, set()).add(job)
    assert all(len(names) == 1 for names in jobs.values())


@pytest.mark.parametrize("place", FORWARD)
def test_killed_then_rolled_back_twice(before: World, place: str) -> None:
    assert child(before.folder, "apply", place) == -signal.SIGKILL
    assert child(before.folder, "rollback") == 0
    assert before.state("a-1") == {"old": "kept"}
    log = before.log("a-1")
    assert child(before.folder, "rollback") == 0
    assert before.log("a-1") == log
    history = fold(verify(Runs(before.folder).find("latest").journal).records)
    assert history.state == "rolled-back"


@pytest.mark.parametrize("place", ["recover:c", "recovered:c", "recover:b", "recovered:a"])
@pytest.mark.parametrize("then", ["rollback", "resume"])
def test_killed_in_the_middle_of_a_rollback(before: World, place: str, then: str) -> None:
    assert child(before.folder, "apply", "applied:c") == -signal.SIGKILL
    assert child(before.folder, "rollback", place) == -signal.SIGKILL
    assert child(before.folder, then) == 0
    assert before.state("a-1") == ({"old": "kept"} if then == "rollback" else DONE)


def test_killed_while_resuming(before: World) -> None:
    assert child(before.folder, "apply", "applied:b") == -signal.SIGKILL
    for place in ("apply:b", "observe:c", "applied:c", "step-done:c"):
        assert child(before.folder, "resume", place) in (-signal.SIGKILL, 0)
    assert child(before.folder, "resume") in (0, 1)  # 1: it was finished already
    assert before.state("a-1") == DONE


def test_killed_from_outside_at_any_time(before: World) -> None:
    draw = random.Random(7)
    for _ in range(20):
        pid = started(before.folder, "apply", seconds=0.1)
        time.sleep(draw.random() * 0.6)
        os.kill(pid, signal.SIGKILL)
        ended(pid)
        if not Runs(before.folder).ids():
            continue
        run = Runs(before.folder).find("latest")
        state = Runs(before.folder).summary(run).state
        if not run.journal.exists() or not verify(run.journal).records:
            assert state == "interrupted"
            with pytest.raises(ColdSnapError) as caught:
                stored_plan(run)
            assert caught.value.code == "run.empty"
        elif state == "interrupted":
            assert child(before.folder, "rollback", seconds=0.1) == 0
            assert before.state("a-1") == {"old": "kept"}
        else:
            for key in ("a", "b", "c"):
                before.set("a-1", **{key: None})


def test_torn_last_line_after_a_crash_is_repaired_by_resume(before: World) -> None:
    assert child(before.folder, "apply", "apply:b") == -signal.SIGKILL
    run = Runs(before.folder).find("latest")
    size = run.journal.stat().st_size
    os.truncate(run.journal, size - 7)
    assert child(before.folder, "resume") == 0
    assert before.state("a-1") == DONE
    kinds = [record.kind for record in verify(run.journal).records]
    assert "journal.repaired" in kinds
