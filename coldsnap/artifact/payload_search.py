"""Whether model bytes lie where none should be: samples of a payload looked for in other files.

One pass over the files, by eight-byte words on eight-byte boundaries. The words looked for are
chosen so that a copy is found at whatever address it lies (`payload_samples.Sample.words`); where
one is met, the whole sample is compared. Large files are shared among processes.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import open_regular
from coldsnap.artifact.payload_samples import WORD, Sample, needles_of

_PIECE: Final = 1 << 20
_CLOSER: Final = 4096
_PART: Final = 256 << 20
"""Bytes that one child searches at a time."""
_MOST_HITS: Final = 10_000

Part = tuple[int, int, int]
"""Number of a file, first byte, byte after the last."""


def _quiet(_done: int) -> None:
    """Tells nobody."""


@dataclass(frozen=True)
class Hit:
    file: str
    position: int
    """Where the sample begins in the file."""
    extent: str
    offset: int
    """Where it begins in the extent."""


@dataclass(frozen=True)
class Searched:
    hits: tuple[Hit, ...]
    """At most 10,000; sorted by file and position."""
    bytes: int
    files: int
    seconds: float


def search(
    files: Sequence[tuple[str, Path]],
    samples: Sequence[Sample],
    *,
    workers: int = 0,
    progress: Callable[[int], None] = _quiet,
) -> Searched:
    """Every place in `files` where a sample lies.

    Args:
        files: (name to tell, path); links and devices are refused.
        samples: what is looked for.
        workers: processes; 0 takes one for each core.
        progress: told the bytes done.

    Raises:
        ColdSnapError: ``file.*``, ``payload.search-failed``.
    """
    begin = time.monotonic()
    lengths = []
    for _, path in files:
        with open_regular(path) as file:
            lengths.append(os.fstat(file.fileno()).st_size)
    parts: list[Part] = [
        (number, start, min(start + _PART, length))
        for number, length in enumerate(lengths)
        for start in range(0, length, _PART)
    ]
    # The largest first: no core waits long for the last.
    parts.sort(key=lambda part: part[1] - part[2])
    paths = [os.fspath(path) for _, path in files]
    count = min(workers or len(os.sched_getaffinity(0)), max(1, len(parts)))
    if count == 1 or sum(lengths) <= _PART:
        found = _alone(paths, parts, samples, progress)
    else:
        found = _together(paths, parts, samples, count, progress)
    hits = sorted(
        {
            Hit(files[number][0], position, samples[index].extent, samples[index].offset)
            for number, position, index in found
        },
        key=lambda hit: (hit.file, hit.position, hit.extent),
    )
    seconds = time.monotonic() - begin
    return Searched(tuple(hits[:_MOST_HITS]), sum(lengths), len(files), seconds)


def _alone(
    paths: Sequence[str],
    parts: Sequence[Part],
    samples: Sequence[Sample],
    progress: Callable[[int], None],
) -> list[tuple[int, int, int]]:
    searcher = _Searcher(samples)
    found: list[tuple[int, int, int]] = []
    done = 0
    for number, start, end in parts:
        room = _MOST_HITS - len(found)
        found += [
            (number, at, index) for at, index in searcher.part(paths[number], start, end, room)
        ]
        done += end - start
        progress(done)
    return found


def _together(
    paths: Sequence[str],
    parts: Sequence[Part],
    samples: Sequence[Sample],
    count: int,
    progress: Callable[[int], None],
) -> list[tuple[int, int, int]]:
    """Each child gets every `count`-th part and prints a line for each."""
    told = [[sample.extent, sample.offset, sample.data.hex()] for sample in samples]
    argv = [sys.executable, "-c", f"from {__name__} import child; child()"]
    children = []
    try:
        for number in range(count):
            child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            children.append(child)
            request = {"paths": list(paths), "parts": parts[number::count], "samples": told}
            _send(child, request)
        found: list[tuple[int, int, int]] = []
        done = 0
        for child in children:
            assert child.stdout is not None  # noqa: S101  (it was asked for)
            for line in child.stdout:
                answer = json.loads(line)
                done += answer["bytes"]
                found += [tuple(hit) for hit in answer["hits"]]
                progress(done)
            if child.wait() != 0:
                raise ColdSnapError(
                    "payload.search-failed",
                    f"a process that searched ended with status {child.returncode}",
                    remedy="search with fewer at once, or look whether memory ran out",
                )
        return found
    finally:
        for child in children:
            child.kill()
            child.wait()


def _send(child: subprocess.Popen[str], request: dict[str, Any]) -> None:
    assert child.stdin is not None  # noqa: S101  (it was asked for)
    json.dump(request, child.stdin)
    child.stdin.close()


def child() -> None:
    """One of several processes that search: its request on stdin, a line for each part."""
    request = json.load(sys.stdin)
    samples = [Sample(e, o, bytes.fromhex(data)) for e, o, data in request["samples"]]
    searcher = _Searcher(samples)
    for number, start, end in request["parts"]:
        hits = searcher.part(request["paths"][number], start, end, _MOST_HITS)
        answer = {"bytes": end - start, "hits": [(number, at, index) for at, index in hits]}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


class _Searcher:
    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = samples
        self._needles = needles_of(samples)
        self._words = frozenset(self._needles)

    def part(self, path: str, start: int, end: int, most: int) -> list[tuple[int, int]]:
        """(position in the file, number of the sample) of what begins with a word in the part."""
        found: list[tuple[int, int]] = []
        if end - start < WORD:
            return found
        with (
            Path(path).open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            data.madvise(mmap.MADV_SEQUENTIAL)
            with memoryview(data) as view:
                for at in range(start, end, _PIECE):
                    if len(found) >= most:
                        break
                    whole = (min(at + _PIECE, end) - at) // WORD * WORD
                    with view[at : at + whole] as piece, piece.cast("Q") as words:
                        if not self._words.isdisjoint(words):
                            found += self._closer(data, words, at)
        return found[:most]

    def _closer(self, data: mmap.mmap, words: memoryview, at: int) -> list[tuple[int, int]]:
        """Samples whose words are in a piece that begins at `at`, whole samples compared."""
        found = []
        step = _CLOSER // WORD
        for first in range(0, len(words), step):
            with words[first : first + step] as few:
                if self._words.isdisjoint(few):
                    continue
                for number, word in enumerate(few):
                    for index, offset in self._needles.get(word, ()):
                        position = at + (first + number) * WORD - offset
                        wanted = self._samples[index].data
                        if position >= 0 and data[position : position + len(wanted)] == wanted:
                            found.append((position, index))
        return found
