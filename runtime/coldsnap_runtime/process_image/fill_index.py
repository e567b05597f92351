"""``fill.index``: where each moved page of an image lies in its files, for ``coldsnap-fill``.

A small binary file that C can walk. Written here with empty digests, which ``coldsnap-fill seal``
fills in. The reader believes nothing: every number is checked against the others before use.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Any, Final

from coldsnap.artifact.errors import ColdSnapError

MAGIC: Final = b"CSFILL01"
CHUNK_BYTES: Final = 1 << 20
BLAKE3: Final = 1
MAY_BE_HUGE: Final = 1
"""Area flag: huge pages may be used (no advice against them, room for one)."""
MAPPED: Final = 2
"""Area flag: mapped from the file, nothing to fill; of the mmap rung."""

_HEADER = struct.Struct("<8s8IQ")
_FILE = struct.Struct("<Q64s")
_PROCESS = struct.Struct("<2I")
_AREA = struct.Struct("<2I2Q")
_RUN = struct.Struct("<2I4Q")
_DIGEST: Final = 32
_PAGE: Final = 4096
_TOP: Final = 1 << 63
_MOST_FILES: Final = 4096
_MOST_PROCESSES: Final = 4096
_MOST_AREAS: Final = 1 << 20
MOST_RUNS: Final = 1 << 20
_MOST_CHUNKS: Final = 1 << 22
"""4 TiB of pages."""
MOST_BYTES: Final = 256 << 20
"""Of a whole index."""
_PAGES_NAME = re.compile(r"pages-(0|[1-9][0-9]{0,9})\.img")


@dataclass(frozen=True)
class IndexFile:
    name: str
    """``pages-N.img`` of CRIU's folder."""
    size: int


@dataclass(frozen=True)
class IndexArea:
    """Memory in which every page that is not zero belongs to a run."""

    process: int
    """Place in `FillIndex.processes`."""
    flags: int
    start: int
    end: int


@dataclass(frozen=True)
class IndexRun:
    process: int
    file: int
    """Place in `FillIndex.files`."""
    address: int
    bytes: int
    offset: int
    """In the file."""

    @property
    def chunks(self) -> int:
        return -(-self.bytes // CHUNK_BYTES)


@dataclass(frozen=True)
class FillIndex:
    files: tuple[IndexFile, ...]
    processes: tuple[int, ...]
    """Numbers inside the unit."""
    areas: tuple[IndexArea, ...]
    runs: tuple[IndexRun, ...]
    digests: bytes = b""
    """32 bytes for each chunk; empty before the index is sealed."""

    @property
    def total(self) -> int:
        return sum(run.bytes for run in self.runs)

    def encoded(self) -> bytes:
        """The file, with zeros for digests that are not known and for the digest at its end."""
        chunks = sum(run.chunks for run in self.runs)
        counts = (len(self.files), len(self.processes), len(self.areas), len(self.runs), chunks)
        parts = [_HEADER.pack(MAGIC, *counts, CHUNK_BYTES, BLAKE3, 0, self.total)]
        parts += [_FILE.pack(file.size, file.name.encode("ascii")) for file in self.files]
        parts += [_PROCESS.pack(pid, 0) for pid in self.processes]
        parts += [_AREA.pack(a.process, a.flags, a.start, a.end) for a in self.areas]
        first = 0
        for run in self.runs:
            place = (run.process, run.file, run.address, run.bytes, run.offset, first)
            parts.append(_RUN.pack(*place))
            first += run.chunks
        parts += [self.digests or bytes(_DIGEST * chunks), bytes(_DIGEST)]
        return b"".join(parts)


def read_fill_index(data: bytes) -> FillIndex:
    """The index in `data`; the digest at its end is for ``coldsnap-fill`` to check.

    Raises:
        ColdSnapError: ``image.damaged`` naming what does not fit.
    """
    try:
        return _Reader(data).read()
    except (ValueError, struct.error) as error:
        raise ColdSnapError(
            "image.damaged",
            f"fill.index of the image is not one: {error}",
            remedy="restore with image_mode plain, and capture again",
        ) from None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self) -> FillIndex:
        counts = self._counts()
        file_count, process_count, area_count, run_count, chunk_count = counts
        rows = (
            (_FILE, file_count),
            (_PROCESS, process_count),
            (_AREA, area_count),
            (_RUN, run_count),
        )
        size = _HEADER.size + sum(row.size * count for row, count in rows)
        size += _DIGEST * (chunk_count + 1)
        if size != len(self._data):
            raise ValueError(f"{len(self._data)} bytes where its counts need {size}")
        files = tuple(_file(*self._row(_FILE)) for _ in range(file_count))
        processes = tuple(_process(*self._row(_PROCESS)) for _ in range(process_count))
        areas = tuple(IndexArea(*self._row(_AREA)) for _ in range(area_count))
        runs = [self._row(_RUN) for _ in range(run_count)]
        digests = self._data[self._at : -_DIGEST]
        index = FillIndex(
            files, processes, areas, tuple(IndexRun(*run[:5]) for run in runs), digests
        )
        _check(index, self._total)
        _check_chunks(index, [run[5] for run in runs], chunk_count)
        return index

    def _counts(self) -> tuple[Any, ...]:
        if len(self._data) > MOST_BYTES:
            raise ValueError("it is too large")
        magic, *words, self._total = self._row(_HEADER)
        if magic != MAGIC:
            raise ValueError("its first bytes are others")
        if words[5:] != [CHUNK_BYTES, BLAKE3, 0]:
            raise ValueError("chunk size or digest kind is not known here")
        most = (_MOST_FILES, _MOST_PROCESSES, _MOST_AREAS, MOST_RUNS, _MOST_CHUNKS)
        if any(count > limit for count, limit in zip(words[:5], most, strict=True)):
            raise ValueError("its counts are too large")
        return tuple(words[:5])

    def _row(self, row: struct.Struct) -> tuple[Any, ...]:
        values = row.unpack_from(self._data, self._at)
        self._at += row.size
        return values


def _file(size: int, name: bytes) -> IndexFile:
    text = name.rstrip(b"\0").decode("ascii", "replace")
    if not _PAGES_NAME.fullmatch(text) or size > _TOP or size % _PAGE:
        raise ValueError(f"a file {text!r} of {size} bytes")
    return IndexFile(text, size)


def _process(pid: int, reserved: int) -> int:
    if not 0 < pid <= 1 << 22 or reserved:
        raise ValueError(f"a process {pid}")
    return pid


def _check(index: FillIndex, total: int) -> None:
    names = [file.name for file in index.files]
    if len(set(names)) != len(names) or list(index.processes) != sorted(set(index.processes)):
        raise ValueError("a file or process is there twice, or out of order")
    _check_areas(index)
    _check_runs(index)
    if index.total != total:
        raise ValueError(f"runs of {index.total} bytes where it says {total}")


def _check_areas(index: FillIndex) -> None:
    last = (-1, 0)
    for area in index.areas:
        if area.process >= len(index.processes) or area.flags & ~(MAY_BE_HUGE | MAPPED):
            raise ValueError(f"the area at {area.start:#x} has no such process, or unknown flags")
        if not area.start < area.end <= _TOP or (area.start | area.end) % _PAGE:
            raise ValueError(f"an area from {area.start:#x} to {area.end:#x}")
        if (area.process, area.start) < last:
            raise ValueError(f"the area at {area.start:#x} overlaps another or is out of order")
        last = (area.process, area.end)


def _check_runs(index: FillIndex) -> None:
    last = (-1, 0)
    at = 0
    for run in index.runs:
        place = f"the run at {run.address:#x}"
        if run.process >= len(index.processes) or run.file >= len(index.files):
            raise ValueError(f"{place} has no such process or file")
        if not run.bytes or (run.address | run.bytes | run.offset) % _PAGE:
            raise ValueError(f"{place} is empty or crooked")
        if run.offset + run.bytes > index.files[run.file].size:
            raise ValueError(f"{place} lies beyond the end of its file")
        if (run.process, run.address) < last:
            raise ValueError(f"{place} overlaps another or is out of order")
        last = (run.process, run.address + run.bytes)
        while at < len(index.areas) and _is_before(index.areas[at], run):
            at += 1
        if at == len(index.areas) or not _holds(index.areas[at], run):
            raise ValueError(f"{place} is in no area")


def _is_before(area: IndexArea, run: IndexRun) -> bool:
    return (area.process, area.end) <= (run.process, run.address)


def _holds(area: IndexArea, run: IndexRun) -> bool:
    return (
        area.process == run.process
        and area.start <= run.address
        and (run.address + run.bytes <= area.end)
    )


def _check_chunks(index: FillIndex, first_chunks: list[int], count: int) -> None:
    expected = 0
    for run, first in zip(index.runs, first_chunks, strict=True):
        if first != expected:
            raise ValueError(f"the run at {run.address:#x} begins at chunk {first}")
        expected += run.chunks
    if expected != count:
        raise ValueError(f"{count} digests where its runs need {expected}")
