"""Restores by the rewritten images with a real CRIU: every page compared before a process runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from process_image_tree import capture_tree, overlay, restored_by
from unit_workplace import Workplace

from coldsnap_runtime.process_image import Mode

pytestmark = pytest.mark.criu


@pytest.mark.parametrize("with_fork", [False, True], ids=["exec", "fork"])
def test_every_page_is_the_captured_one(
    workplace: Workplace, fill_program: Path, *, with_fork: bool
) -> None:
    captured = capture_tree(workplace, with_fork=with_fork)
    modes: tuple[Mode, ...] = ("ext", "mmap")
    for mode in modes:
        done = overlay(captured, mode, fill_program)
        assert done.bytes_moved > 30 << 20
        for _ in range(2):
            with restored_by(workplace, captured, mode) as (record, found):
                assert not found.differing_moved
                assert not found.holes_not_zero
                assert found.hole_bytes > 4 << 20
                assert found.pages * 4096 >= done.bytes_moved + done.bytes_kept
                assert len(found.differing) < 100, "stacks and thread blocks only"
                for _ in range(2):
                    assert workplace.ask(record) == captured.answer
