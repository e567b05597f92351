"""doctor and status: what hosts said, whatever they said."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.render.hosts import HostAnswer, doctor_text, status_text

GOLDEN = Path(__file__).parent / "golden"

PROFILE = {
    "identity": {"kernel": "6.18", "architecture": "x86_64", "cpu": {"model": "EPYC"}},
    "features": [
        {"id": "criu", "status": "passed", "evidence": {"version": "4.1.1"}},
        {"id": "docker", "status": "failed", "reason": "no socket", "remedy": "start dockerd"},
        {"id": "driver.criu", "status": "passed", "evidence": {}},
        {"id": "driver.n610", "status": "unqualified", "reason": "never tried"},
    ],
}
LOST = HostAnswer("gpu-9", {}, ColdSnapError("host.unreachable", "connection refused"))
UNITS = {
    "units": [
        {
            "unit": "u0",
            "generation": 12,
            "state": "serving",
            "engine": "vllm",
            "model": {"id": "Qwen3-8B", "path": "/m"},
            "artifact": "sha256:" + "9b" * 32,
            "since": 1.0,
            "exposed": True,
            "ports": [{"name": "http", "host": "127.0.0.1", "port": 8000}],
            "rss_bytes": 4 << 30,
        },
        {"unit": "u1", "generation": 1, "state": "dead", "engine": "vllm", "artifact": None},
    ]
}


def test_doctor_of_one_host_is_golden(golden) -> None:
    shown = doctor_text([HostAnswer("local", PROFILE)])
    golden(GOLDEN / "doctor-one.txt", shown + "\n")


def test_doctor_of_several_is_golden(golden) -> None:
    shown = doctor_text([HostAnswer("gpu-1", PROFILE), HostAnswer("gpu-2", PROFILE), LOST])
    golden(GOLDEN / "doctor-several.txt", shown + "\n")


def test_doctor_of_many_has_a_row_for_each() -> None:
    shown = doctor_text([HostAnswer(f"gpu-{n}", PROFILE) for n in range(9)])
    assert shown.splitlines()[0].split() == ["HOST", "CRIU", "N610"]
    assert shown.splitlines()[9].split() == ["gpu-8", "yes", "untested"]


def test_status_is_golden(golden, monkeypatch) -> None:
    monkeypatch.setattr("time.time", lambda: 7201.0)
    shown = status_text([HostAnswer("gpu-1", UNITS), HostAnswer("gpu-2", {"units": []}), LOST])
    golden(GOLDEN / "status.txt", shown + "\n")


def test_status_of_nothing() -> None:
    assert status_text([HostAnswer("a", {"units": []})]) == "No units on 1 host."


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"features": 3, "units": 3, "identity": 3},
        {"features": [1, {"id": 7}], "units": [1, {"since": "x", "ports": 3, "exposed": True}]},
        {"features": [{"id": "a", "evidence": 3}], "units": [{"rss_bytes": "x"}], "identity": {}},
    ],
)
def test_nonsense_from_a_host_is_survived(value) -> None:
    assert doctor_text([HostAnswer("h", value)])
    assert doctor_text([HostAnswer("h", value), HostAnswer("i", value)])
    assert status_text([HostAnswer("h", value)])


def test_hostile_text_is_cleaned() -> None:
    bad = {"features": [{"id": "a\x1b[2J", "status": "failed", "reason": "\x07", "remedy": "\r"}]}
    units = {"units": [{"unit": "\x1b[2J", "state": "\x1b", "since": 1}]}
    assert "\x1b" not in doctor_text([HostAnswer("h", bad)])
    assert "\x1b" not in status_text([HostAnswer("h", units)])
