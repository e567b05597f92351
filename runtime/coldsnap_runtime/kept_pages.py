"""The pages that a rewrite leaves with CRIU, compared with a restored tree that stands still.

They are few. Those that the kernel and CRIU's restorer write to by themselves, on stacks and in
thread blocks, differ after every restore, a plain one too; any other difference is told.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.host_pids import host_pids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coldsnap_runtime.unit_record import ProcessRef

_PAGE = 4096
_BELOW = 8 << 20
_ABOVE = 1 << 20
"""Bytes around a stack pointer or another hot address that belong to it."""


@dataclass
class Kept:
    pages: int = 0
    differing: int = 0
    """On stacks and in thread blocks."""


def compare_kept(folder: Path, rung: str, init: ProcessRef) -> Kept:
    """Compare what `rung` of the capture in `folder` did not move.

    Raises:
        ColdSnapError: ``fill.memory-differs`` for a page that nobody may have written to;
            ``image.damaged``, ``image.unsupported``.
    """
    module = importlib.import_module("coldsnap_runtime.process_image.process_image")
    indexes = importlib.import_module("coldsnap_runtime.process_image.fill_index")
    image = module.read_process_image(folder / "images")
    index = indexes.read_fill_index((folder / rung / "fill.index").read_bytes())
    pids = host_pids(init.pid, [process.pid for process in image.processes])
    found = Kept()
    for process in image.processes:
        moved = [
            (run.address, run.address + run.bytes)
            for run in index.runs
            if index.processes[run.process] == process.pid
        ]
        pages = folder / "images" / process.pages.pages_name
        with (
            pages.open("rb", buffering=0) as file,
            Path(f"/proc/{pids[process.pid]}/mem").open("rb", buffering=0) as memory,
        ):
            for start, end, offset in _outside(process.pages.runs, moved):
                _compare(process, (file, memory), (start, end, offset), found)
    return found


def _outside(runs: tuple[Any, ...], moved: list[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """(start, end, offset in the file) of dumped pages outside of `moved`; both are sorted."""
    at = 0
    for run in runs:
        start = run.start
        while at < len(moved) and moved[at][1] <= start:
            at += 1
        k = at
        while k < len(moved) and moved[k][0] < run.end:
            if moved[k][0] > start:
                yield start, moved[k][0], run.offset + start - run.start
            start = max(start, moved[k][1])
            k += 1
        if start < run.end:
            yield start, run.end, run.offset + start - run.start


def _compare(process: Any, files: tuple[Any, Any], part: tuple[int, int, int], found: Kept) -> None:
    start, end, offset = part
    file, memory = files
    expected = os.pread(file.fileno(), end - start, offset)
    seen = os.pread(memory.fileno(), end - start, start)
    found.pages += (end - start) // _PAGE
    if seen == expected:
        return
    for at in range(0, end - start, _PAGE):
        if seen[at : at + _PAGE] == expected[at : at + _PAGE]:
            continue
        found.differing += 1
        if not _is_hot(process, start + at):
            raise ColdSnapError(
                "fill.memory-differs",
                f"a page of process {process.pid} that nobody may have written to differs",
                details=("differences: 1", f"address: {start + at:#x}"),
            )


def _is_hot(process: Any, address: int) -> bool:
    return any(hot - _BELOW <= address < hot + _ABOVE for hot in (*process.hot, *process.stacks))
