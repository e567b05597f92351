"""``fill.index``: what is written is read back, what is wrong in any number is refused."""

from __future__ import annotations

import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.process_image.fill_index import (
    CHUNK_BYTES,
    FillIndex,
    IndexArea,
    IndexFile,
    IndexRun,
    read_fill_index,
)

PAGE = 4096
GIB = 1 << 30


def index() -> FillIndex:
    return FillIndex(
        files=(IndexFile("pages-1.img", 64 * PAGE), IndexFile("pages-3.img", 2 * GIB)),
        processes=(1001, 1012),
        areas=(
            IndexArea(0, 0, 0x10000, 0x20000),
            IndexArea(0, 1, 0x200000, 0x600000),
            IndexArea(1, 0, 0x10000, 0x10000 + GIB),
        ),
        runs=(
            IndexRun(0, 0, 0x10000, PAGE, 0),
            IndexRun(0, 0, 0x12000, 2 * PAGE, 3 * PAGE),
            IndexRun(0, 0, 0x300000, 40 * PAGE, 20 * PAGE),
            IndexRun(1, 1, 0x10000, CHUNK_BYTES + PAGE, 0),
            IndexRun(1, 1, 0x400000, 5 * CHUNK_BYTES, CHUNK_BYTES + PAGE),
        ),
    )


def test_it_comes_back() -> None:
    found = read_fill_index(index().encoded())
    assert replace(found, digests=b"") == index()
    assert len(found.digests) == 32 * (1 + 1 + 1 + 2 + 5)
    assert found.total == (1 + 2 + 40) * PAGE + 6 * CHUNK_BYTES + PAGE


def test_the_bytes_are_those_of_the_document() -> None:
    """Every field where docs/formats.md says, with nothing between."""
    data = index().encoded()
    assert data[:8] == b"CSFILL01"
    assert struct.unpack_from("<8I", data, 8) == (2, 2, 3, 5, 10, 1 << 20, 1, 0)
    assert struct.unpack_from("<Q", data, 40) == (index().total,)
    assert struct.unpack_from("<Q64s", data, 48)[1].rstrip(b"\0") == b"pages-1.img"
    assert struct.unpack_from("<2I", data, 48 + 2 * 72) == (1001, 0)
    areas = 48 + 2 * 72 + 2 * 8
    assert struct.unpack_from("<2I2Q", data, areas + 24) == (0, 1, 0x200000, 0x600000)
    runs = areas + 3 * 24
    last = struct.unpack_from("<2I4Q", data, runs + 4 * 40)
    assert last == (1, 1, 0x400000, 5 << 20, (1 << 20) + 4096, 5)
    assert len(data) == runs + 5 * 40 + 10 * 32 + 32


def changed(**fields: object) -> bytes:
    return replace(index(), **fields).encoded()


def with_run(number: int, **fields: int) -> bytes:
    runs = list(index().runs)
    runs[number] = replace(runs[number], **fields)
    return changed(runs=tuple(runs))


def with_area(number: int, **fields: int) -> bytes:
    areas = list(index().areas)
    areas[number] = replace(areas[number], **fields)
    return changed(areas=tuple(areas))


def with_word(place: int, value: int) -> bytes:
    data = bytearray(index().encoded())
    struct.pack_into("<I", data, place, value)
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        index().encoded()[:-1],
        index().encoded() + b"\0",
        b"CSFILL02" + index().encoded()[8:],
        with_word(28, 4096),
        with_word(32, 2),
        with_word(36, 1),
        with_word(40, 1),
        with_word(8, 0xFFFFFFFF),
        changed(files=(IndexFile("pages-1.img", 64 * PAGE), IndexFile("pages-1.img", 2 * GIB))),
        changed(files=(IndexFile("../pages-1.img", 64 * PAGE), index().files[1])),
        changed(files=(IndexFile("mm-1.img", 64 * PAGE), index().files[1])),
        changed(files=(IndexFile("pages-1.img", 64 * PAGE + 1), index().files[1])),
        changed(processes=(1012, 1001)),
        changed(processes=(0, 1001)),
        with_area(0, process=2),
        with_area(0, flags=4),
        with_area(0, end=0x10000),
        with_area(0, start=0x10001),
        with_area(1, start=0x1F000),
        with_area(2, end=(1 << 64) - PAGE),
        with_run(0, process=2),
        with_run(0, file=2),
        with_run(0, bytes=0),
        with_run(0, address=0x10001),
        with_run(0, offset=1),
        with_run(0, offset=64 * PAGE),
        with_run(0, bytes=3 * PAGE),
        with_run(1, address=0x21000),
        with_run(1, bytes=100 * PAGE),
        with_word(416 + 4, 1 << 31),  # the size of run 3: more than 2^63
        with_run(3, offset=(1 << 64) - PAGE),
        with_run(4, address=0x10000),
    ],
)
def test_wrong_numbers_are_refused(data: bytes) -> None:
    with pytest.raises(ColdSnapError, match=r"image\.damaged"):
        read_fill_index(data)


@settings(max_examples=300, deadline=None)
@given(place=st.integers(0, len(index().encoded()) - 1), value=st.integers(1, 255))
def test_a_flipped_byte_is_refused_or_means_nothing_new(place: int, value: int) -> None:
    """Digests are for the filler; everything else is bound by another number."""
    data = bytearray(index().encoded())
    data[place] ^= value
    try:
        found = read_fill_index(bytes(data))
    except ColdSnapError:
        return
    assert found.total == index().total
    for run in found.runs:
        assert run.offset + run.bytes <= found.files[run.file].size


def test_the_filler_and_we_refuse_the_same(fill_program: Path, place: Path) -> None:
    """A sealed index of ours is valid to both; with one changed number to none."""
    (place / "pages-1.img").write_bytes(b"\1" * 64 * PAGE)
    with (place / "pages-3.img").open("wb") as file:
        file.truncate(2 * GIB)
    path = place / "fill.index"
    path.write_bytes(index().encoded())
    assert seal(fill_program, path, place) == 0
    found = read_fill_index(path.read_bytes())
    assert replace(found, digests=b"") == index()
    assert found.digests != bytes(len(found.digests))
    for data in (with_run(1, address=0x10000), with_area(1, start=0x1F000), with_word(40, 1)):
        path.write_bytes(data)
        assert seal(fill_program, path, place) == 2


def seal(program: Path, path: Path, images: Path) -> int:
    argv = [program, "seal", "--index", path, "--images", images]
    return subprocess.run(argv, capture_output=True, check=False).returncode
