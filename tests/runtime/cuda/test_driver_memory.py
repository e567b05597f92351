"""What is mapped between two looks at a process."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from coldsnap_runtime.driver_memory import added, anonymous_ranges

CODE = """
import ctypes, mmap, sys
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
print("ready", flush=True)
sys.stdin.readline()
place = libc.mmap(None, ctypes.c_size_t(5 << 20), 3, 0x22, -1, 0)
print(place, flush=True)
sys.stdin.readline()
"""


def test_a_process_that_maps_more() -> None:
    argv = [sys.executable, "-I", "-S", "-c", CODE]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
        before = anonymous_ranges(child.pid)
        child.stdin.write("\n")
        child.stdin.flush()
        place = int(child.stdout.readline())
        found = added(before, anonymous_ranges(child.pid))
        assert any(start <= place and place + (5 << 20) <= end for start, end in found)
        assert sum(end - start for start, end in found) < 8 << 20
        child.stdin.write("\n")
        child.stdin.flush()


def test_of_a_process_that_is_gone_there_is_nothing() -> None:
    assert anonymous_ranges(0) == []


spans = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8))).map(
    lambda items: [(start, start + size) for start, size in items]
)


def merged(items: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """In order and disjoint, as the kernel tells them."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(items):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


@given(before=spans.map(merged), after=spans.map(merged))
def test_added_is_what_sets_say(
    before: list[tuple[int, int]], after: list[tuple[int, int]]
) -> None:
    def points(items: list[tuple[int, int]]) -> set[int]:
        return {point for start, end in items for point in range(start, end)}

    found = added(before, after)
    assert points(found) == points(after) - points(before)
    assert found == sorted(found)
