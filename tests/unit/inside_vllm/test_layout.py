"""Every byte of an allocation is in exactly one part."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldsnap_inside_vllm.layout import Region, cover, layout_sha256

ALLOCATIONS = [Region(1000, 100), Region(2000, 50)]


def test_gaps_are_residual():
    parts = cover(ALLOCATIONS, [("w", Region(1010, 20)), ("b", Region(2000, 50))])
    assert [(p.id.split("/")[0], p.allocation, p.offset, p.bytes) for p in parts] == [
        ("model", 1, 0, 50),
        ("model", 0, 10, 20),
        ("residual", 0, 0, 10),
        ("residual", 0, 30, 70),
    ]


def test_tied_weights_have_one_owner():
    parts = cover(ALLOCATIONS[:1], [("z", Region(1000, 100)), ("a", Region(1000, 100))])
    assert [(p.id, p.bytes) for p in parts] == [("model/a", 100)]


def test_outside_is_left_out():
    assert [p.id[:8] for p in cover(ALLOCATIONS[1:], [("w", Region(1, 5))])] == ["residual"]


def test_overlapping_allocations_are_refused():
    with pytest.raises(ValueError, match="overlap"):
        cover([Region(0, 10), Region(5, 10)], [])


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(1, 200)), max_size=12),
    st.lists(st.integers(1, 100), min_size=1, max_size=4),
)
def test_cover_is_exact_and_disjoint(tensors, sizes):
    allocations, at = [], 10
    for size in sizes:
        allocations.append(Region(at, size))
        at += size + 7
    parts = cover(allocations, [(f"t{n}", Region(*region)) for n, region in enumerate(tensors)])
    assert len({part.id for part in parts}) == len(parts)
    for number, allocation in enumerate(allocations):
        own = sorted((p.offset, p.bytes) for p in parts if p.allocation == number)
        end = 0
        for offset, size in own:
            assert offset == end
            assert size > 0
            end += size
        assert end == allocation.bytes


def test_layout_has_no_addresses():
    moved = [Region(5, 100), Region(500, 50)]
    assert layout_sha256(moved) == layout_sha256(ALLOCATIONS)
    assert layout_sha256(moved[:1]) != layout_sha256(ALLOCATIONS)
