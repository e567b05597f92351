"""What nobody will ask for again goes; what may be asked for stays."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from coldsnap_runtime.tidy import tidy
from coldsnap_runtime.unit_record import UnitRecord, UnitStore

WEEKS = 3 * 7 * 86400


def ended_generations(state: Path, count: int) -> UnitStore:
    store = UnitStore(state)
    for _ in range(count):
        number, _paths = store.create("u0")
        store.save(UnitRecord("u0", number, "stopped", "tiny", "sha256:" + "1" * 64, time.time()))
    return store


def old_job(state: Path, identity: str, age: float) -> Path:
    folder = state / "jobs" / identity
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps({"format": 1, "verb": "unit.stop", "attempt": 1}))
    (folder / "result.json").write_text(json.dumps({"format": 1, "attempt": 1, "line": {}}))
    for path in (*folder.iterdir(), folder):
        os.utime(path, (time.time() - age,) * 2)
    return folder


def test_only_the_newest_ended_generations_stay(tmp_path: Path) -> None:
    store = ended_generations(tmp_path, 8)
    (tmp_path / "jobs").mkdir()
    tidy(str(tmp_path))
    assert [record.generation for record in store.generations("u0")] == [4, 5, 6, 7, 8]
    assert store.create("u0")[0] == 9, "a number is never used twice"


def test_old_jobs_go_and_young_ones_stay(tmp_path: Path) -> None:
    old, young = old_job(tmp_path, "old", WEEKS), old_job(tmp_path, "young", 60)
    tidy(str(tmp_path))
    assert not old.exists()
    assert young.exists()


def test_at_most_once_an_hour(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    tidy(str(tmp_path))
    old = old_job(tmp_path, "old", WEEKS)
    tidy(str(tmp_path))
    assert old.exists()
    stamp = tmp_path / "jobs" / ".tidied"
    os.utime(stamp, (time.time() - 7200,) * 2)
    tidy(str(tmp_path))
    assert not old.exists()
