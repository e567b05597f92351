"""When profiling is left out, and why not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from coldsnap_inside_vllm.startup_plan import (
    MOST_SHORTFALL,
    VARIABLE,
    StartupPlan,
    planned_kv,
    read_plan,
)

GIB = 1 << 30
PLAN = StartupPlan(
    vllm="0.24.0",
    torch="2.11.0",
    device="NVIDIA H200",
    capability="9.0",
    config="c0ffee",
    device_bytes=141 * GIB,
    free_bytes=100 * GIB,
    requested_bytes=100 * GIB,
    kv_bytes=80 * GIB,
    graph_sizes=(1, 2, 4),
)


def test_the_same_device_gets_what_profiling_found():
    assert planned_kv(PLAN, replace(PLAN, kv_bytes=0)) == (80 * GIB, "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"vllm": "0.25.0"}, "vLLM was 0.24.0, it is 0.25.0"),
        ({"torch": "2.12.0"}, "torch was"),
        ({"device": "NVIDIA H100"}, "the device was NVIDIA H200, it is NVIDIA H100"),
        ({"capability": "8.0"}, "compute capability"),
        ({"config": "dead"}, "the configuration"),
        ({"graph_sizes": (1,)}, "graph sizes"),
        ({"device_bytes": 80 * GIB}, "the device has"),
        ({"requested_bytes": 50 * GIB}, "may be taken"),
        ({"free_bytes": 99 * GIB}, "fewer are free"),
    ],
)
def test_anything_else_is_profiled_again(change, said):
    size, reason = planned_kv(PLAN, replace(PLAN, **change))
    assert size == 0
    assert said in reason


def test_a_little_less_room_costs_kv():
    short = 200 << 20
    assert planned_kv(PLAN, replace(PLAN, free_bytes=100 * GIB - short)) == (80 * GIB - short, "")
    beyond = replace(PLAN, free_bytes=100 * GIB - MOST_SHORTFALL - 1)
    assert planned_kv(PLAN, beyond)[0] == 0


def test_what_nobody_asked_for_may_be_gone():
    """At capture 40 GiB more than the request were free; a neighbour holds 30 of them now."""
    plan = replace(PLAN, free_bytes=140 * GIB)
    assert planned_kv(plan, replace(plan, free_bytes=110 * GIB)) == (80 * GIB, "")
    assert planned_kv(plan, replace(plan, free_bytes=99 * GIB))[0] == 0


def test_kv_never_grows():
    assert planned_kv(PLAN, replace(PLAN, free_bytes=120 * GIB, device_bytes=200 * GIB)) == (
        80 * GIB,
        "",
    )


def test_there_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"workers": [PLAN.to_json(), replace(PLAN, kv_bytes=1).to_json()]}))
    monkeypatch.setenv(VARIABLE, str(path))
    assert read_plan(0) == (PLAN, "")
    second, _ = read_plan(1)
    assert second is not None
    assert second.kv_bytes == 1
    assert read_plan(2)[0] is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"workers": [{}]}',
        json.dumps({"workers": [{**PLAN.to_json(), "kv_bytes": -1}]}),
        json.dumps({"workers": [{**PLAN.to_json(), "kv_bytes": "80"}]}),
        json.dumps({"workers": [{**PLAN.to_json(), "more": 1}]}),
    ],
)
def test_what_is_no_plan_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str):
    path = tmp_path / "plan.json"
    path.write_text(text)
    monkeypatch.setenv(VARIABLE, str(path))
    plan, reason = read_plan(0)
    assert plan is None
    assert reason.startswith("it cannot be read")


def test_none_was_handed_over(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert read_plan(0) == (None, "none was handed over")
