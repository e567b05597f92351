"""The thin thread: launch, dump, kill, restore several times and twice at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit_workplace import Workplace, counter

pytestmark = pytest.mark.criu


def test_one_image_restores_many_times_and_twice_at_once(workplace: Workplace) -> None:
    first = workplace.serve(workplace.script("counter.py", counter()))
    before = workplace.ask(first)

    captured = workplace.checkpoint(first)
    after_dump = workplace.ask(first)
    assert after_dump["n"] == before["n"] + 1, "the engine serves on after the dump"
    workplace.stop(first)

    for _ in range(3):
        record = workplace.restore(captured["capture_dir"])
        assert workplace.ask(record) == after_dump
        assert workplace.ask(record)["n"] == after_dump["n"] + 1
        workplace.stop(record)

    twins = [workplace.restore(captured["capture_dir"]) for _ in range(2)]
    assert [workplace.ask(twin) for twin in twins] == [after_dump, after_dump]
    for _ in range(5):
        workplace.ask(twins[0])
    assert workplace.ask(twins[1])["n"] == after_dump["n"] + 1, "they share nothing"


def test_a_restored_unit_can_be_captured_again(workplace: Workplace) -> None:
    first = workplace.serve(workplace.script("counter.py", counter()))
    workplace.ask(first)
    one = workplace.restore(workplace.checkpoint(first, "c1")["capture_dir"])
    n = workplace.ask(one)["n"]
    captured = workplace.checkpoint(one, "c2")
    workplace.stop(one)
    two = workplace.restore(captured["capture_dir"])
    assert workplace.ask(two)["n"] == n + 1


def test_nothing_is_left_after_a_stop(workplace: Workplace) -> None:
    mounts = Path("/proc/self/mountinfo").read_text()
    record = workplace.serve(workplace.script("counter.py", counter()))
    restored = workplace.restore(workplace.checkpoint(record)["capture_dir"])
    namespaces = {
        str(Path(f"/proc/{r.init.pid}/ns/pid").readlink()) for r in (record, restored) if r.init
    }
    assert len(namespaces) == 2
    for each in (record, restored):
        workplace.stop(each)
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert not namespaces & set(_pid_namespaces())
    for each in (record, restored):
        folder = workplace.store.paths(each.unit, each.generation).folder
        assert sorted(path.name for path in folder.iterdir()) == ["control", "unit.json", "work"]
    states = [each.state for each in workplace.store.generations("u0")]
    assert states == ["stopped", "stopped"]


def _pid_namespaces() -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(str((folder / "ns" / "pid").readlink()))
        except OSError:
            continue
    return found
