"""Where the driver keeps device state in a process's own memory while it is checkpointed.

An image shows it as anonymous memory like any other. What is mapped between a look before and one
after the checkpoint is it; for people only, so a process that cannot be looked at has none.
"""

from __future__ import annotations

from collections.abc import Iterable

Ranges = list[tuple[int, int]]
"""(start, end) in order, disjoint."""
_MOST_RANGES = 1024


def anonymous_ranges(pid: int) -> Ranges:
    """Private, writable memory of a process (its number on the host) that is of no file."""
    found: Ranges = []
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                span, mode, _, device, inode = line.split(maxsplit=5)[:5]
                if mode.startswith("rw") and mode.endswith("p") and (device, inode) == _NO_FILE:
                    start, end = (int(text, 16) for text in span.split("-"))
                    found.append((start, end))
    except (OSError, ValueError):
        return []
    return found


_NO_FILE = ("00:00", "0")


def added(before: Iterable[tuple[int, int]], after: Iterable[tuple[int, int]]) -> Ranges:
    """What of `after` is not in `before`; the largest, if there are very many."""
    found: Ranges = []
    known = sorted(before)
    at = 0
    for start, end in sorted(after):
        while at < len(known) and known[at][1] <= start:
            at += 1
        for known_start, known_end in known[at:]:
            if known_start >= end:
                break
            if known_start > start:
                found.append((start, known_start))
            start = max(start, known_end)  # noqa: PLW2901
        if start < end:
            found.append((start, end))
    return sorted(sorted(found, key=lambda item: item[0] - item[1])[:_MOST_RANGES])
