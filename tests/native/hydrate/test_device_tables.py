"""Tables of extents of all shapes to a device, by blocks of all sizes: every byte at its place, no
other touched, and what is damaged is named."""

from __future__ import annotations

import ctypes
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.hydrate import Library, Session
from coldsnap_runtime.hydrate.session import Transfer
from coldsnap_runtime.hydrate.structures import Algorithm, Io, Place

PAGE = 4096
CASES = 60


@dataclass
class Case:
    path: Path
    content: bytes
    memory: ctypes.Array[ctypes.c_char]
    transfer: Transfer
    extents: list[tuple[int, int, int]]
    """Offset in the file, bytes, offset in the memory."""


def make_case(library: Library, folder: Path, number: int) -> Case:
    chance = random.Random(number)
    chunk = PAGE * chance.choice([1, 2, 3, 16, 40])
    extents: list[tuple[int, int, int]] = []
    content, place = bytearray(), chance.randrange(64)
    if chance.random() < 0.3:
        content += chance.randbytes(PAGE * chance.randrange(1, 20))  # before all, of no extent
    for _ in range(chance.randrange(1, 30)):
        length = chance.choice([0, 1, PAGE - 1, PAGE, PAGE + 1, chance.randrange(300_000)])
        extents.append((len(content), length, place))
        content += chance.randbytes(length)
        content += bytes(-length % PAGE + PAGE * chance.choice([0, 0, 0, 1, 30]))
        place += length + chance.randrange(1, 40)
    digests = b"".join(
        library.digest(Algorithm.BLAKE3, bytes(content[at : min(at + chunk, offset + length)]))
        for offset, length, _ in extents
        for at in range(offset, offset + length, chunk)
    )
    path = folder / f"{number}.bin"
    path.write_bytes(content)
    memory = ctypes.create_string_buffer(b"\xa5" * (place + 64), place + 64)
    base = ctypes.addressof(memory)
    table = [(offset, length, base + at) for offset, length, at in extents]
    algorithm = chance.choice([Algorithm.BLAKE3, Algorithm.BLAKE3, Algorithm.UNVERIFIED])
    transfer = Transfer(
        str(path), len(content), table, chunk, algorithm,
        digests if algorithm else None, check_padding=chance.random() < 0.5,
    )  # fmt: skip
    return Case(path, bytes(content), memory, transfer, extents)


def expected(case: Case) -> bytes:
    wanted = bytearray(b"\xa5" * len(case.memory))
    for offset, length, at in case.extents:
        wanted[at : at + length] = case.content[offset : offset + length]
    return bytes(wanted)


@pytest.mark.parametrize("number", range(CASES))
def test_a_table_of_any_shape(
    monkeypatch: pytest.MonkeyPatch, library: Library, fake_cuda: Path, tmp_path: Path, number: int
) -> None:
    monkeypatch.setenv("FAKE_CUDA_DELAY_US", "10")
    case = make_case(library, tmp_path, number)
    chance = random.Random(-1 - number)
    shape = {
        "threads": chance.randrange(2, 9), "slots": chance.randrange(1, 5),
        "slot_bytes": PAGE * chance.choice([1, 2, 7, 64]),
        "block_bytes": PAGE * chance.choice([1, 5, 16, 100]),
    }  # fmt: skip
    with Session(
        library, Place.CUDA, io=chance.choice(list(Io)), cuda_library=str(fake_cuda), **shape
    ) as session:
        metrics = session.read(case.transfer)
        assert case.memory.raw == expected(case)
        assert metrics.bytes == sum(length for _, length, _ in case.extents)
        damage(case, chance, session)


def damage(case: Case, chance: random.Random, session: Session) -> None:
    """One bit of an extent, or of the zeros behind one, and then the call must fail."""
    lengths = [(number, row) for number, row in enumerate(case.extents) if row[1]]
    if not lengths or case.transfer.algorithm == Algorithm.UNVERIFIED:
        return
    number, (offset, length, _) = chance.choice(lengths)
    content = bytearray(case.content)
    behind = offset + length
    if case.transfer.check_padding and behind % PAGE and chance.random() < 0.5:
        content[behind] ^= 0x10
        wanted = rf"pack\.padding.*behind extent {number} "
    else:
        at = chance.randrange(length)
        content[offset + at] ^= 0x10
        chunk = at // case.transfer.chunk_bytes
        wanted = rf"pack\.chunk-differs.*extent {number}, chunk {chunk} "
    case.path.write_bytes(content)
    with pytest.raises(ColdSnapError, match=wanted):
        session.read(case.transfer)
