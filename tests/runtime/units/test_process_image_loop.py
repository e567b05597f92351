"""One image restored again and again: no page differs, and nothing is left behind.

COLDSNAP_RESTORES: how often by each rung (default 4); a release is tried with 100.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from process_image_tree import capture_tree, overlay, restored_by
from unit_workplace import Workplace

pytestmark = [pytest.mark.criu, pytest.mark.timeout(3600)]

ROUNDS = int(os.environ.get("COLDSNAP_RESTORES", "4"))


def test_restores_in_a_loop(workplace: Workplace, fill_program: Path) -> None:
    captured = capture_tree(workplace, with_fork=True)
    for mode in ("ext", "mmap"):
        overlay(captured, mode, fill_program)
    before = _traces(workplace)
    pages = 0
    for _ in range(ROUNDS):
        for mode in ("ext", "mmap"):
            with restored_by(workplace, captured, mode, fill_program) as (record, found):
                assert not found.differing_moved
                assert not found.holes_not_zero
                assert workplace.ask(record) == captured.answer
                assert _traces(workplace) != before
            pages += found.pages
        assert _traces(workplace) == before
    assert pages > 2 * ROUNDS * 60_000


def _traces(place: Workplace) -> tuple[int, list[str], int]:
    """Processes and mounts of this workplace, and our descriptors."""
    own = str(place.state_dir.parent)
    processes = sum(_is_alive(folder, own) for folder in Path("/proc").glob("[0-9]*"))
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return processes, [line for line in mounts if own in line], descriptors


def _is_alive(folder: Path, own: str) -> bool:
    try:
        return own.encode() in (folder / "cmdline").read_bytes()
    except OSError:
        return False
