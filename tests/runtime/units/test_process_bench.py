"""The bench of process images: a small tree, every rung, a loop that leaves nothing, replicas."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from unit_workplace import Workplace

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.render.palette import PLAIN
from coldsnap.render.process_bench import process_text
from coldsnap_runtime import process_bench
from coldsnap_runtime.guard_place import why_no_mmap
from coldsnap_runtime.image_proof import folded
from coldsnap_runtime.process_bench.replicas import together
from coldsnap_runtime.process_bench.subject import synthetic
from coldsnap_runtime.process_bench.turns import Turns, machine

pytestmark = pytest.mark.criu
TREE = Path(process_bench.__file__).with_name("tree.py")


def test_all_rungs_in_turns_in_a_loop_and_in_pairs(workplace: Workplace) -> None:
    if not workplace.installation.guard.is_file():
        pytest.skip("libcoldsnap_guard.so is not built")
    told: list[str] = []
    subject = synthetic(workplace.context, workplace.installation, 96 << 20, TREE)
    assert subject.bytes > 96 << 20
    assert {name: v["proven"] for name, v in subject.verdicts.items()} == {
        "ext": True,
        "mmap": True,
    }
    turns = Turns(subject, workplace.context, workplace.installation)
    series = turns.measure(("plain", "ext", "mmap"), 1, told.append)
    assert [len(one.answered) for one in series] == [1, 1, 1]
    assert all(one.answered[0] >= one.restored[0] > 0 for one in series)
    looped = turns.loop(("ext", "mmap"), 4, told.append)
    assert looped["pages_compared"] > 4 * (90 << 20) // 4096
    assert set(looped["leaks"].values()) == {0}, looped
    pairs = together(turns, subject, workplace.context, 1, told.append)
    assert (pairs["good"], pairs["tries"]) == (1, 1)
    assert 0 < pairs["private_bytes"] < pairs["pss_bytes"] < 2 * subject.bytes
    found = {
        "machine": machine(),
        "bytes": subject.bytes,
        "verdicts": subject.verdicts,
        "missing": {},
        "series": [one.to_json() for one in series],
        "loop": looped,
        "replicas": pairs,
    }
    text = process_text(found, PLAIN)
    assert "plain CRIU" in text
    assert "1 of 1 answered alike" in text


def test_a_tree_that_answers_otherwise_is_no_measurement(workplace: Workplace) -> None:
    subject = synthetic(workplace.context, workplace.installation, 8 << 20, TREE)
    turns = Turns(replace(subject, expected=["1", "2"]), workplace.context, workplace.installation)
    with pytest.raises(ColdSnapError) as caught:
        turns.once("plain")
    assert caught.value.code == "bench.differs"
    assert [r.state for r in workplace.store.generations("bench") if r.is_live] == []


@pytest.mark.parametrize(
    ("guard", "path", "expected"),
    [
        (False, "/usr/lib/libc.so.6", "without memory_guard"),
        (True, "/usr/lib/libc.so.6", ""),
        (True, "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4", "libtcmalloc_minimal"),
        (True, "/opt/lib/libjemalloc.so.2", "libjemalloc"),
        (True, "/opt/mimalloc/libmimalloc.so", "libmimalloc"),
        (True, "/opt/jemalloc/bin/python3", ""),
    ],
)
def test_what_must_not_be_mapped(path: str, expected: str, *, guard: bool) -> None:
    reason = why_no_mmap({"memory_guard": guard}, [path])
    assert expected in reason
    assert bool(expected) == bool(reason)


def test_many_areas_are_folded_without_losing_a_byte() -> None:
    rows = [
        {"pid": n % 3, "process": "p", "kind": "heap" if n % 2 else "stack", "name": "n"}
        | {"start": n * 4096, "bytes": 4096 * (n + 1)}
        for n in range(1000)
    ]
    found = folded(rows)
    assert len(found) == 128 + 6
    assert sum(row["bytes"] for row in found) == sum(row["bytes"] for row in rows)
    assert found[0] == rows[-1]
    assert folded([]) == []
