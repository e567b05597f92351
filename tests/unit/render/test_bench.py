"""The figures of a bench and how they are shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coldsnap.render.bench import Measured, bench_json, bench_text, compared
from coldsnap.render.bench_markdown import bench_markdown

VERSIONS = {
    "coldsnap": "0.1",
    "criu": "4.2.1",
    "cores": 2,
    "load": [0.5, 0.4, 0.3],
    "hosts": {
        "gpu-1": {
            "kernel": "6.18",
            "python": "3.11",
            "cpu": "a CPU",
            "cores": 16,
            "nvidia_driver": "580.159.04",
            "gpus": ["H200"],
            "gpu_memory_bytes": [141 << 30],
        }
    },
    "engine": "serving",
    "software": {"u0": {"serving-cpu": "0.24.0", "torch": "2.11.0", "orjson": "3"}},
    "command": "coldsnap bench cold-vs-restore plans/a.yaml plans/b.yaml --var model=...",
}


def timing(**seconds: float) -> dict[str, Any]:
    clock = {"id": "c", "source": "CLOCK_BOOTTIME", "origin_unix_ns": 0}
    spans = [
        {
            "id": f"s{n}",
            "name": name,
            "clock": "c",
            "start_offset_seconds": float(n),
            "duration_seconds": value,
            "status": "ok",
            "attributes": {},
        }
        for n, (name, value) in enumerate(seconds.items())
    ]
    spans.append({**spans[0], "id": "inner", "name": "inner", "parent": "s0"})
    return {"format": 1, "clocks": [clock], "spans": spans}


def one(kind: str, seconds: float, unit: str = "u0", **outputs: Any) -> Measured:
    values = {"first_token_seconds": seconds, **outputs}
    return Measured.read(kind, "gpu-1", unit, values, seconds + 1.0)


def measured() -> list[Measured]:
    cold = [one("cold start", seconds) for seconds in (40.0, 60.0, 41.0)]
    warm = [
        one("restore", seconds, same=True, timing=timing(restore=0.5, hydrate=1.0, answer=0.1))
        for seconds in (2.0, 1.0, 9.0)
    ]
    return [*cold, *warm]


def test_medians_are_compared_not_means():
    (found,) = compared(measured())
    assert found.ratio == 41.0 / 2.0
    assert found.is_same


def test_units_stand_for_themselves_and_halves_are_left_out():
    more = [one("cold start", 10.0, "u1"), one("restore", 5.0, "u1", same=True)]
    alone = [one("cold start", 10.0, "u2")]
    found = compared([*measured(), *more, *alone])
    assert [(item.unit, item.ratio) for item in found] == [("u0", 20.5), ("u1", 2.0)]


def test_an_answer_that_differs_or_was_not_compared_is_not_the_same():
    for same in (False, None):
        found = compared([one("cold start", 9.0), one("restore", 1.0, same=same)])
        assert not found[0].is_same
        assert "same answer: no" in bench_text(found, VERSIONS)


def test_the_table_names_what_was_measured_and_with_what():
    text = bench_text(compared(measured()), VERSIONS)
    assert "u0 on gpu-1   page cache warm   20x   same answer: yes" in text
    lines = {line.strip().split("  ")[0]: line for line in text.splitlines()}
    assert "41.0 s" in lines["cold start to first token"]
    assert "2.00 s" in lines["restore to first token"]
    assert "hydrate" in lines
    assert lines["inner"].index("inner") == lines["restore"].index("restore") + 2, "nested"
    assert "0.40 s" in lines["between them"], "2.0 less 0.5, 1.0 and 0.1"
    assert "CRIU 4.2.1" in text
    assert "H200 (141 GiB), NVIDIA driver 580.159.04, a CPU, 16 cores" in text
    assert "u0: serving-cpu 0.24.0, torch 2.11.0" in text
    assert "load average 0.5 0.4 0.3" in text


def test_json_holds_every_measurement():
    value = bench_json(compared(measured()), VERSIONS)
    assert value["kind"] == "coldsnap-bench-cold-vs-restore"
    (unit,) = value["units"]
    assert (unit["cold_median_seconds"], unit["restore_median_seconds"]) == (41.0, 2.0)
    assert [item["first_token_seconds"] for item in unit["restored"]] == [2.0, 1.0, 9.0]
    assert unit["restored"][0]["phases"][0]["path"] == ["restore"]
    assert unit["phases"]["restored"][1] == {
        "path": ["restore", "inner"],
        "median_seconds": 0.5,
        "n": 3,
        "note": "",
    }


def test_phases_after_the_first_token_are_not_part_of_the_way_to_it():
    spans = timing(restore=0.5, **{"first-token": 0.25}, answer=4.0)
    found = one("restore", 2.0, same=True, timing=spans)
    assert {phase.name for phase in found.phases} == {"restore", "inner", "first-token"}


def test_each_process_has_a_phase_of_its_own():
    spans = timing(**{"cuda-restore": 0.4})
    for number, process in enumerate(("core", "server")):
        inner = {"id": f"p{number}", "parent": "s0", "attributes": {"process": process}}
        spans["spans"].append({**spans["spans"][0], **inner})
    found = one("restore", 2.0, same=True, timing=spans)
    names = [phase.path[-1] for phase in found.phases]
    assert names == ["cuda-restore", "inner", "cuda-restore core", "cuda-restore server"]


def test_what_two_steps_tell_alike_is_one_phase():
    spans = timing(hydrate=1.0)
    values = {"first_token_seconds": 2.0, "timings": [spans, None, spans, "x"]}
    found = Measured.read("restore", "gpu-1", "u0", values, 3.0)
    assert [phase.name for phase in found.phases] == ["hydrate", "inner"]


def test_a_state_without_cold_starts_stands_against_warm_ones():
    warm = measured()
    dropped = [replace(one("restore", 20.5, same=True), page_cache="dropped")]
    found = compared([*warm, *dropped])
    assert [(item.page_cache, item.cold_page_cache, item.ratio) for item in found] == [
        ("warm", "warm", 20.5),
        ("dropped", "warm", 2.0),
    ]
    assert "cold start to first token (page cache warm)" in bench_text(found, VERSIONS)
    own = [replace(one("cold start", 82.0), page_cache="dropped")]
    assert compared([*warm, *dropped, *own])[1].ratio == 4.0


def test_markdown_is_ready_for_a_document():
    text = bench_markdown(compared(measured()), VERSIONS, "a|b", "2026-11-30")
    assert text.startswith("### a\\|b (2026-11-30)\n\nH200 (141 GiB), NVIDIA driver 580.159.04")
    assert "serving-cpu 0.24.0, torch 2.11.0, CRIU 4.2.1" in text
    assert "Command: `coldsnap bench cold-vs-restore plans/a.yaml" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {row.count("|") - row.count("\\|") for row in rows} == {7}
    assert "| **restore to first token** | 2.00 s | 1.00 s | 9.00 s | 3 |  |" in rows
