"""What a start took, as told by all its processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldsnap_inside_vllm import phases


def test_told_by_their_beginnings_and_nested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(phases.FOLDER_VARIABLE, str(tmp_path))
    with phases.phase("model"), phases.phase("payload") as attributes:
        attributes["bytes"] = 5
    with phases.phase("kv"):
        pass
    (tmp_path / "phases.jsonl").open("a").write("cut off {\n")
    told = phases.told()
    assert [span["name"] for span in told] == ["model", "payload", "kv"]
    assert [span.get("parent") for span in told] == [None, "model", None]
    assert told[1]["attributes"] == {"bytes": 5}


def test_no_folder_costs_no_start(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(phases.FOLDER_VARIABLE, "/nowhere/at/all")
    with phases.phase("model"):
        pass
    assert phases.told() == []


def test_the_clock_of_a_restored_process(tmp_path: Path):
    offsets = tmp_path / "timens_offsets"
    offsets.write_text("monotonic         -26         500000000\nboottime         -26  250000000\n")
    assert phases.clock_offset(str(offsets)) == -25.75
    assert phases.clock_offset(str(tmp_path / "nothing")) == 0.0
