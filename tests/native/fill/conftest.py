"""coldsnap-fill, and what its tests fill."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from fill_index import HUGE, PAGE, Answer, Index, Parked, call


@pytest.fixture(scope="session")
def program(programs: Path) -> Path:
    return programs / "coldsnap-fill"


@pytest.fixture
def park() -> Iterator[Callable[[Sequence[int]], Parked]]:
    if os.geteuid() != 0:
        pytest.skip("needs root to write into other processes")
    made: list[Parked] = []

    def start(sizes: Sequence[int]) -> Parked:
        made.append(Parked(sizes))
        return made[-1]

    yield start
    for parked in made:
        parked.end()


@dataclass
class Scene:
    """Targets, an image folder and an index of them, not sealed yet."""

    program: Path
    folder: Path
    targets: list[Parked]
    index: Index

    @property
    def path(self) -> Path:
        return self.folder / "fill.index"

    def write(self) -> None:
        self.path.write_bytes(self.index.pack())

    def seal(self) -> Answer:
        self.write()
        return self.call("seal")

    def call(self, verb: str, *more: object) -> Answer:
        pids = [f"--pid={t.pid}={t.pid}" for t in self.targets] if verb != "seal" else []
        return call(self.program, verb, "--index", self.path, "--images", self.folder, *pids, *more)

    def wanted(self, process: int) -> dict[int, bytes]:
        """What each area of a process holds once it is filled."""
        found = {}
        for of, _, start, end in self.index.areas:
            if of != process:
                continue
            memory = bytearray(end - start)
            for run_of, file, address, size, offset in self.index.runs:
                if run_of == process and start <= address < end:
                    name = self.index.files[file][0]
                    data = (self.folder / name).read_bytes()[offset : offset + size]
                    memory[address - start : address - start + size] = data
            found[start] = bytes(memory)
        return found

    def seen(self, process: int) -> dict[int, bytes]:
        return {
            start: self.targets[process].read(start, end - start)
            for of, _, start, end in self.index.areas
            if of == process
        }


AREAS = (8 << 20, 3 * PAGE, 5 << 20, PAGE)


def runs_of(start: int, size: int) -> list[tuple[int, int]]:
    """Some pages, with holes: one at the start, some in the middle, the end."""
    if size <= 4 * PAGE:
        return [(start, PAGE)]
    middle = start + size // 2
    small = [(middle + 2 * i * PAGE, PAGE) for i in range(40)]
    return [
        (start, size // 3 // PAGE * PAGE), *small, (start + size - (1 << 20) - PAGE, 1 << 20)
    ]  # fmt: skip


@pytest.fixture
def scene(program: Path, tmp_path: Path, park: Callable[[Sequence[int]], Parked]) -> Scene:
    """Two processes, two files, runs of all kinds: large, single pages, off the 2 MiB grid."""
    targets = sorted([park(AREAS), park(AREAS)], key=lambda target: target.pid)
    index = Index([], [target.pid for target in targets], [], [])
    for process, target in enumerate(targets):
        offset = 16 * PAGE
        for start, size in sorted(zip(target.starts, AREAS, strict=True)):
            index.areas.append((process, HUGE, start, start + size))
            for address, length in runs_of(start, size):
                index.runs.append((process, process, address, length, offset))
                offset += length
        name = f"pages-{process + 1}.img"
        index.files.append((name, offset))
        (tmp_path / name).write_bytes(os.urandom(offset))
    return Scene(program, tmp_path, targets, index)
