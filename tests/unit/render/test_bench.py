"""The figures of a bench and how they are shown."""

from __future__ import annotations

from typing import Any

from coldsnap.render.bench import Measured, bench_json, bench_text, compared

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
            "gpus": ["H200"],
        }
    },
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
    assert "u0 on gpu-1   20x   same answer: yes" in text
    lines = {line.strip().split("  ")[0]: line for line in text.splitlines()}
    assert "41 s" in lines["cold start to first token"]
    assert "2 s" in lines["restore to first token"]
    assert "hydrate" in lines
    assert "inner" not in lines, "only what lies in no other span is added up"
    assert "CRIU 4.2.1" in text
    assert "H200" in text
    assert "load average 0.5 0.4 0.3" in text


def test_json_holds_every_measurement():
    value = bench_json(compared(measured()), VERSIONS)
    assert value["kind"] == "coldsnap-bench-cold-vs-restore"
    (unit,) = value["units"]
    assert (unit["cold_median_seconds"], unit["restore_median_seconds"]) == (41.0, 2.0)
    assert [item["first_token_seconds"] for item in unit["restored"]] == [2.0, 1.0, 9.0]
    assert unit["restored"][0]["spans"][0] == ("restore", 0.5)
