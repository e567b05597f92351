"""Restores by the rewritten images with a real CRIU: every page compared before a process runs."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from process_image_tree import Captured, Compared, capture_tree, overlay, restored_by
from unit_workplace import Workplace

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.process_image import Mode, Rewritten, rewrite, shared_pages
from coldsnap_runtime.process_image.fill_index import read_fill_index

pytestmark = pytest.mark.criu


MODES: tuple[Mode, ...] = ("ext", "mmap")
MIB = 1 << 20


def test_every_page_is_the_captured_one(workplace: Workplace, fill_program: Path) -> None:
    captured = capture_tree(workplace, with_fork=False)
    steps: tuple[tuple[Mode, Path | None], ...] = (
        ("ext", None),
        ("ext", fill_program),
        ("mmap", fill_program),
    )
    for mode, program in steps:
        _compare(workplace, captured, mode, fill_program, program)
    _cut(captured)
    with (
        pytest.raises(ColdSnapError) as caught,
        restored_by(workplace, captured, "mmap"),
    ):
        pytest.fail("a process runs on a file that was cut")
    assert caught.value.code == "criu.restore-failed"
    assert "bad size" in " ".join(caught.value.details)


def test_forked_processes_too(
    workplace: Workplace, fill_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are moved if that costs little memory; else what they share, they share again."""
    captured = capture_tree(workplace, with_fork=True)
    freely = {}
    for mode in MODES:
        done, _ = _compare(workplace, captured, mode, fill_program, fill_program)
        assert len(done.processes) == 3
        freely[mode] = done.bytes_kept
    monkeypatch.setattr(shared_pages, "_FREE_BYTES", 8 * MIB)
    monkeypatch.setattr(shared_pages, "_FREE_PART", 100)
    for mode in MODES:
        done, found = _compare(workplace, captured, mode, fill_program)
        assert done.bytes_kept - freely[mode] > 40 * MIB
        assert found.shared_bytes > 40 * MIB


def test_damaged_images_of_a_real_tree(workplace: Workplace) -> None:
    """Any byte of any file of messages: our own error, or a rewrite that adds up."""
    captured = capture_tree(workplace, with_fork=False)
    rng = random.Random(20261130)
    copy, target = workplace.state_dir.parent / "copy", workplace.state_dir.parent / "out"
    kinds = ("mm-*", "pagemap-*", "core-*", "pstree.*", "inventory.*", "files.*")
    refused = 0
    for number in range(200):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(captured.images, copy, copy_function=os.link)
        path = rng.choice(sorted(copy.glob(rng.choice(kinds))))
        data = bytearray(path.read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.unlink()
        path.write_bytes(data[: rng.randrange(len(data))] if number % 4 == 0 else data)
        shutil.rmtree(target, ignore_errors=True)
        try:
            done = rewrite(copy, target, MODES[number % 2], Path("/bin/true"))
        except ColdSnapError as error:
            refused += error.code in ("image.damaged", "image.unsupported")
            continue
        index = read_fill_index((target / "fill.index").read_bytes())
        assert index.total == done.bytes_moved
    assert 60 < refused < 200


def _cut(captured: Captured) -> None:
    largest = max(captured.images.glob("pages-*.img"), key=lambda path: path.stat().st_size)
    largest.chmod(0o600)
    os.truncate(largest, largest.stat().st_size - 4096)
    largest.chmod(0o400)


def _compare(
    workplace: Workplace,
    captured: Captured,
    mode: Mode,
    fill_program: Path,
    program: Path | None = None,
) -> tuple[Rewritten, Compared]:
    """Rewrite, restore, and look at each page before and at the answers after."""
    done = overlay(captured, mode, fill_program)
    assert done.bytes_moved > 30 * MIB
    with restored_by(workplace, captured, mode, program) as (record, found):
        assert not found.differing_moved
        assert not found.holes_not_zero
        assert found.hole_bytes > 4 * MIB
        assert found.pages * 4096 >= done.bytes_moved + done.bytes_kept
        assert len(found.differing) < 100, "stacks and thread blocks only"
        for _ in range(2):
            assert workplace.ask(record) == captured.answer
    return done, found
