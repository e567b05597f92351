"""Memory -> pack: the very bytes that the writer in Python makes, or nothing."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from host_memory import CHUNK, LENGTHS, Memory

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.pack import PackRef, open_pack
from coldsnap_runtime.hydrate import Library, Session, Source, hydrate_pack, verify_pack, write_pack
from coldsnap_runtime.hydrate.session import Cancel
from coldsnap_runtime.hydrate.structures import Algorithm, Place


@pytest.fixture
def sources(memory: Memory, contents: dict[str, bytes]) -> list[Source]:
    for name, data in contents.items():
        ctypes.memmove(memory.addresses[name], data, len(data))
    return [
        Source(name, length, memory.addresses[name], {"dtype": "U8"})
        for name, length in LENGTHS.items()
    ]


@pytest.mark.parametrize("algorithm", ["sha256", "blake3"])
def test_it_is_the_pack_that_python_writes(
    session: Session,
    checker: Session,
    sources: list[Source],
    ref: PackRef,
    tmp_path: Path,
    algorithm: Literal["sha256", "blake3"],
) -> None:
    made = write_pack(session, tmp_path / "new", sources, chunk_bytes=CHUNK, algorithm=algorithm)
    assert made.body.read_bytes() == ref.body.read_bytes()
    assert made.sha256 == ref.sha256
    assert made.body.stat().st_mode & 0o777 == 0o400
    assert sorted(path.name for path in made.body.parent.iterdir()) == [
        made.index.name, made.body.name,
    ]  # fmt: skip
    ours, theirs = json.loads(made.index.read_bytes()), json.loads(ref.index.read_bytes())
    assert [e["sha256"] for e in ours["extents"]] == [e["sha256"] for e in theirs["extents"]]
    if algorithm == "sha256":
        assert [e["tree"] for e in ours["extents"]] == [e["tree"] for e in theirs["extents"]]
    with open_pack(made.body, made.index, index_sha256=made.index_sha256) as pack:
        assert pack.index.chunk.algorithm == algorithm
        assert pack.verify() == made.bytes
        verify_pack(checker, pack)


def test_blake3_chunks_are_checked_with_and_without_the_library(
    session: Session, sources: list[Source], tmp_path: Path, contents: dict[str, bytes]
) -> None:
    made = write_pack(session, tmp_path, sources, chunk_bytes=CHUNK)
    with open_pack(made.body, made.index) as pack:
        assert pack.read("f") == contents["f"]
        assert b"".join(bytes(part) for _, part in pack.chunks("f")) == contents["f"]
        made.body.chmod(0o600)
        with made.body.open("r+b") as file:
            file.seek(pack.index.find("f").offset + CHUNK)
            file.write(bytes(100))
        for read in (lambda: pack.read("f"), lambda: next(pack.chunks("f")), pack.verify):
            with pytest.raises(ColdSnapError, match=r"pack\.extent-differs"):
                read()
        with pytest.raises(ColdSnapError, match=r"pack\.chunk-differs.*extent 'f', chunk 1"):
            hydrate_pack(session, pack, Memory(LENGTHS).addresses)


@pytest.mark.parametrize("length", [0, 1, 1023, 1024, 1025, 4096, 31744, 102_400])
def test_digests_are_the_published_ones(library: Library, length: int) -> None:
    data = bytes(i % 251 for i in range(length))
    assert library.digest(Algorithm.SHA256, data) == hashlib.sha256(data).digest()
    vectors = json.loads((Path(__file__).parent / "blake3_vectors.json").read_text())
    assert library.digest(Algorithm.BLAKE3, data).hex() == vectors[str(length)]


def test_sha256_of_every_length_around_its_blocks(library: Library) -> None:
    for length in (*range(260), 4095, 4097):
        data = os.urandom(length)
        assert library.digest(Algorithm.SHA256, data) == hashlib.sha256(data).digest()


def test_order_and_digest_room_are_checked(session: Session, tmp_path: Path) -> None:
    memory = Memory({"a": 10, "b": 10})
    a, b = (Source(name, 10, memory.addresses[name]) for name in ("a", "b"))
    for bad, code in (([b, a], "pack.unsorted"), ([a, a], "pack.duplicate")):
        with pytest.raises(ColdSnapError) as caught:
            write_pack(session, tmp_path, bad)
        assert caught.value.code == code
    with pytest.raises(ColdSnapError, match=r"hydrate\.invalid.*memory of extent 1 overlaps"):
        write_pack(session, tmp_path, [a, Source("b", 10, a.address + 5)])
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_no_extents_are_a_pack_too(session: Session, tmp_path: Path) -> None:
    made = write_pack(session, tmp_path, [])
    assert (made.bytes, made.sha256) == (0, "sha256:" + hashlib.sha256().hexdigest())


def test_a_cancelled_or_late_write_leaves_nothing(library: Library, tmp_path: Path) -> None:
    size = 256 << 20
    memory = ctypes.create_string_buffer(size)
    source = Source("a", size, ctypes.addressof(memory))
    cancel = Cancel()
    with Session(library) as session:
        with pytest.raises(ColdSnapError, match=r"hydrate\.cancelled"):
            write_pack(session, tmp_path, [source], cancel=cancel, progress=lambda *_: cancel.set())
        with pytest.raises(ColdSnapError, match=r"hydrate\.deadline"):
            write_pack(session, tmp_path, [source], seconds=0.01)
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]
        small = Source("a", 5000, source.address)
        assert write_pack(session, tmp_path, [small]).bytes == 8192


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(folder)]
    if subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("needs root to mount a small tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(session: Session, sources: list[Source], small_disk: Path) -> None:
    with pytest.raises(ColdSnapError) as caught:
        write_pack(session, small_disk, sources)
    assert caught.value.code == "file.disk-full"
    assert "no space left while writing" in caught.value.message
    assert caught.value.remedy
    assert not [path for path in small_disk.rglob("*") if path.is_file()]


def test_an_existing_file_is_never_written_over(library: Library, tmp_path: Path) -> None:
    from coldsnap_runtime.hydrate.session import Transfer  # noqa: PLC0415

    path = tmp_path / "there"
    path.write_bytes(b"precious")
    transfer: Any = Transfer(str(path), 0, [], 4096, Algorithm.SHA256)
    with Session(library, Place.HOST) as session, pytest.raises(ColdSnapError, match="exists"):
        session.write(transfer)
    assert path.read_bytes() == b"precious"
