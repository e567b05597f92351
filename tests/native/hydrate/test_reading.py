"""File -> host memory: right bytes by every way of reading, and every way that it can fail."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import stat
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from host_memory import CHUNK, LENGTHS, Memory

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.pack import PackReader, PackRef, open_pack, write_pack
from coldsnap_runtime.hydrate import Library, Session, hydrate_pack, verify_pack
from coldsnap_runtime.hydrate.session import Cancel, Transfer
from coldsnap_runtime.hydrate.structures import Algorithm, Io, Place


def refusal(action: Any, *arguments: Any, **options: Any) -> ColdSnapError:
    with pytest.raises(ColdSnapError) as caught:
        action(*arguments, **options)
    assert "\n" not in caught.value.message
    return caught.value


def change(body: Path, at: int, data: bytes) -> None:
    body.chmod(0o600)
    with body.open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_every_byte_arrives_and_none_beside_it(
    session: Session, pack: PackReader, memory: Memory, contents: dict[str, bytes]
) -> None:
    report = hydrate_pack(session, pack, memory.addresses)
    assert {name: memory.read(name) for name in LENGTHS} == contents
    assert all(memory.around(name) == bytes(100) for name in LENGTHS)
    assert report.bytes == sum(LENGTHS.values())
    assert report.stages["digest"] > 0


def test_without_verification_and_a_part_of_the_extents(
    session: Session, pack: PackReader, memory: Memory, contents: dict[str, bytes]
) -> None:
    part = {name: memory.addresses[name] for name in ("c", "f")}
    assert hydrate_pack(session, pack, part, verify=False).bytes == 300_002
    assert (memory.read("c"), memory.read("f")) == (contents["c"], contents["f"])
    assert memory.read("a") == bytes(LENGTHS["a"])
    assert refusal(hydrate_pack, session, pack, {"x": 1}).code == "pack.no-such-extent"


def test_the_cold_part_goes_round_the_page_cache(
    library: Library, ref: PackRef, contents: dict[str, bytes]
) -> None:
    """AUTO takes what the page cache has and reads the rest by O_DIRECT, where there is that."""
    with Session(library, io=Io.DIRECT) as probe, open_pack(ref.body, ref.index) as pack:
        memory = Memory(LENGTHS)
        if not hydrate_pack(probe, pack, memory.addresses).direct_bytes:
            pytest.skip("the file system of the tests has no O_DIRECT")
    descriptor = os.open(ref.body, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    with Session(library) as session, open_pack(ref.body, ref.index) as pack:
        memory = Memory(LENGTHS)
        cold = hydrate_pack(session, pack, memory.addresses)
        assert {name: memory.read(name) for name in LENGTHS} == contents
        os.pread(descriptor, ref.bytes, 0)
        warm = hydrate_pack(session, pack, memory.addresses)
    os.close(descriptor)
    assert cold.direct_bytes > 0
    assert warm.direct_bytes == 0


def test_a_flipped_bit_is_named(session: Session, ref: PackRef, memory: Memory) -> None:
    with open_pack(ref.body, ref.index) as pack:
        extent = pack.index.find("f")
        at = extent.offset + 3 * CHUNK + 5
        byte = ref.body.read_bytes()[at]
        change(ref.body, at, bytes([byte ^ 0x10]))
        error = refusal(hydrate_pack, session, pack, memory.addresses)
    assert error.code == "pack.chunk-differs"
    start = extent.offset + 3 * CHUNK
    assert f"extent 'f', chunk 3 (bytes {start} to {start + CHUNK})" in error.message
    assert "provider=recovery" in error.remedy


def test_verification_finds_padding_identity_and_extents(checker: Session, ref: PackRef) -> None:
    with open_pack(ref.body, ref.index) as pack:
        assert verify_pack(checker, pack).bytes == sum(LENGTHS.values())
        change(ref.body, pack.index.find("c").offset + 1, b"x")
        error = refusal(verify_pack, checker, pack)
        assert error.code == "pack.padding"
        assert "extent 'c', the zeros behind it" in error.message
        change(ref.body, pack.index.find("c").offset + 1, b"\0")
        verify_pack(checker, pack)


@pytest.mark.parametrize(
    ("field", "code"),
    [("body", "pack.body-differs"), ("extent", "pack.extent-differs")],
)
def test_an_index_that_lies(checker: Session, ref: PackRef, field: str, code: str) -> None:
    value = json.loads(ref.index.read_bytes())
    place = value["body"] if field == "body" else value["extents"][0]
    place["sha256"] = "sha256:" + "0" * 64
    ref.index.chmod(0o600)
    ref.index.write_text(json.dumps(value))
    with open_pack(ref.body, ref.index) as pack:
        assert refusal(verify_pack, checker, pack).code == code
        verify_pack(checker, pack, identity=False)


@pytest.mark.parametrize(("delta", "code"), [(-1, "pack.short"), (1, "pack.grown")])
def test_a_file_of_another_length(
    session: Session, ref: PackRef, memory: Memory, delta: int, code: str
) -> None:
    with open_pack(ref.body, ref.index) as pack:
        ref.body.chmod(0o600)
        os.truncate(ref.body, ref.bytes + delta)
        error = refusal(hydrate_pack, session, pack, memory.addresses)
    assert error.code == code
    assert f"has {ref.bytes + delta} bytes, its index says {ref.bytes}" in error.message


def test_a_file_that_shrinks_meanwhile(library: Library, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(64 << 20))
    shrunk = threading.Event()

    def shrink(done: int, _: int) -> None:
        if not shrunk.is_set():
            os.truncate(path, 0)
            shrunk.set()

    with Session(library, Place.NOWHERE, io=Io.BUFFERED, threads=2) as session:
        transfer = Transfer(
            str(path), 64 << 20, [(0, 64 << 20, 0)], 4096, Algorithm.UNVERIFIED, progress=shrink
        )
        error = refusal(session.read, transfer)
    assert error.code in ("pack.short", "pack.changed")


def test_what_is_no_regular_file(session: Session, tmp_path: Path, ref: PackRef) -> None:
    def read(path: Path) -> str:
        return refusal(session.read, Transfer(str(path), 0, [], 4096, Algorithm.SHA256)).code

    link = tmp_path / "link"
    link.symlink_to(ref.body)
    os.mkfifo(tmp_path / "fifo")
    assert read(link) == "file.not-regular"
    assert read(tmp_path / "fifo") == "file.not-regular"
    assert read(tmp_path) == "file.not-regular"
    assert read(Path("/dev/zero")) == "file.not-regular"
    assert read(tmp_path / "none") == "file.missing"


TOP = (1 << 64) - 1


@pytest.mark.parametrize(
    ("extents", "chunk", "says"),
    [
        ([(1, 8, 4096)], 4096, "is at 1, no multiple of 4096"),
        ([(0, 8193, 4096)], 4096, "is outside the file's 8192 bytes"),
        ([(4096, TOP, 4096)], 4096, "is outside the file's 8192 bytes"),
        ([(TOP - 4095, 4096, 4096)], 4096, "is outside the file's 8192 bytes"),
        ([(0, 5000, 4096), (4096, 1, 1 << 20)], 4096, "overlaps the one before it"),
        ([(4096, 1, 4096), (0, 1, 1 << 20)], 4096, "overlaps the one before it"),
        ([(0, 4096, 4096), (4096, 4096, 8191)], 4096, "memory of extent 1 overlaps"),
        ([(0, 4096, 0)], 4096, "extent 0 has an impossible address"),
        ([(0, 4096, TOP - 100)], 4096, "extent 0 has an impossible address"),
        ([(0, 4096, 4096)], 0, "chunks of 0 bytes"),
        ([(0, 4096, 4096)], 4097, "chunks of 4097 bytes"),
        ([(0, 4096, 4096)], 1 << 40, "chunks of 1099511627776 bytes"),
    ],
)
def test_hostile_tables(
    session: Session, tmp_path: Path, extents: list[tuple[int, int, int]], chunk: int, says: str
) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(8192))
    transfer = Transfer(str(path), 8192, extents, chunk, Algorithm.UNVERIFIED)
    error = refusal(session.read, transfer)
    assert error.code == "hydrate.invalid"
    assert says in error.message


def test_digests_that_do_not_fit(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(8192))
    transfer = Transfer(str(path), 8192, [(0, 8192, 4096)], 4096, Algorithm.SHA256, bytes(32))
    assert "1 digests for 2 chunks" in refusal(session.read, transfer).message
    transfer = Transfer(str(path), 1 << 62, [], 4096, Algorithm.SHA256)
    assert "size is impossible" in refusal(session.read, transfer).message


def test_cancelled_half_way(library: Library, tmp_path: Path) -> None:
    path = tmp_path / "f"
    with path.open("wb") as file:
        file.truncate(8 << 30)
    cancel = Cancel()
    seen: list[int] = []

    def watch(done: int, _: int) -> None:
        seen.append(done)
        cancel.set()

    transfer = Transfer(
        str(path), 8 << 30, [(0, 8 << 30, 0)], 1 << 20, Algorithm.UNVERIFIED,
        cancel=cancel, progress=watch,
    )  # fmt: skip
    with Session(library, Place.NOWHERE) as session:
        error = refusal(session.read, transfer)
        assert error.code == "hydrate.cancelled"
        assert 0 < seen[-1] < 8 << 30
        late = Transfer(str(path), 8 << 30, transfer.extents, 1 << 20, Algorithm.UNVERIFIED,
                        seconds=0.05)  # fmt: skip
        begin = time.monotonic()
        error = refusal(session.read, late)
        assert error.code == "hydrate.deadline"
        assert "0.05 seconds" in error.message
        assert time.monotonic() - begin < 2


def test_an_error_of_the_progress_callback_comes_through(library: Library, tmp_path: Path) -> None:
    path = tmp_path / "f"
    with path.open("wb") as file:
        file.truncate(8 << 30)

    def interrupted(*_: int) -> None:
        raise KeyboardInterrupt

    transfer = Transfer(
        str(path), 8 << 30, [(0, 8 << 30, 0)], 1 << 20, Algorithm.UNVERIFIED, progress=interrupted
    )
    with Session(library, Place.NOWHERE) as session, pytest.raises(KeyboardInterrupt):
        session.read(transfer)


def test_a_hundred_thousand_extents(library: Library, tmp_path: Path) -> None:
    count = 100_000
    path = tmp_path / "f"
    with path.open("wb") as file:
        file.truncate(count * 4096)
        file.seek(4096 * 99_999)
        file.write(b"z")
    memory = ctypes.create_string_buffer(count)
    base = ctypes.addressof(memory)
    extents = [(i * 4096, 1, base + i) for i in range(count)]
    zero, last = hashlib.sha256(b"\0").digest(), hashlib.sha256(b"z").digest()
    with Session(library) as session:
        transfer = Transfer(
            str(path), count * 4096, extents, 4096, Algorithm.SHA256, zero * 99_999 + last
        )
        assert session.read(transfer).bytes == count
        assert memory.raw == bytes(99_999) + b"z"
        wrong = Transfer(str(path), count * 4096, extents, 4096, Algorithm.SHA256, zero * count)
        assert "extent 99999, chunk 0" in refusal(session.read, wrong).message


@pytest.fixture
def ramfs(tmp_path: Path) -> Any:
    folder = tmp_path / "ramfs"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "ramfs", "none", str(folder)], check=False)
    if done.returncode != 0:
        pytest.skip("needs root to mount a ramfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_file_system_without_direct_io(
    library: Library, ramfs: Path, contents: dict[str, bytes]
) -> None:
    ref = write_pack(ramfs, [(n, len(d), d) for n, d in contents.items()], chunk_bytes=CHUNK)
    memory = Memory(LENGTHS)
    with pytest.raises(OSError, match="Invalid argument"):
        os.open(ref.body, os.O_RDONLY | os.O_DIRECT)
    with Session(library, io=Io.DIRECT) as session, open_pack(ref.body, ref.index) as pack:
        report = hydrate_pack(session, pack, memory.addresses)
    assert {name: memory.read(name) for name in LENGTHS} == contents
    assert report.direct_bytes == 0


def test_settings_are_checked(library: Library) -> None:
    for options in (
        {"slot_bytes": 4097}, {"slot_bytes": 1 << 30}, {"slots": 65}, {"threads": 10_000},
    ):  # fmt: skip
        assert refusal(Session, library, **options).code == "hydrate.invalid"


def test_the_library_goes_when_it_is_told_to(built: Path) -> None:
    """A process that is captured must not have it mapped."""
    code = (
        "import sys; from coldsnap_runtime.hydrate import Library, Session;"
        "library = Library(sys.argv[1]); Session(library).close();"
        "maps = lambda: 'coldsnap_hydrate' in open('/proc/self/maps').read();"
        "before = maps(); library.unload(); print(before, maps());"
        "import os; print(len(os.listdir('/proc/self/task')))"
    )
    done = subprocess.run(
        ["python3", "-c", code, str(built / "libcoldsnap_hydrate.so")],
        env={**os.environ, "PYTHONPATH": ":".join(_source_folders())},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["True", "False", "1"]


def _source_folders() -> list[str]:
    root = Path(__file__).parents[3]
    return [str(root), str(root / "runtime")]


def test_the_published_pack_is_left_as_it_was(
    session: Session, pack: PackReader, ref: PackRef, memory: Memory
) -> None:
    before = ref.body.stat()
    hydrate_pack(session, pack, memory.addresses)
    after = ref.body.stat()
    assert stat.S_IMODE(after.st_mode) == 0o400
    assert (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)


@pytest.mark.parametrize(
    "length", [1, 63, 64, 65, 8191, 8193, 8256, 10_000, 16_000, 25_000, 40_961]
)
def test_chunks_are_hashed_two_at_a_time_whatever_their_lengths(
    session: Session, tmp_path: Path, length: int
) -> None:
    data = os.urandom(length)
    path = tmp_path / "f"
    path.write_bytes(data)
    memory = Memory({"x": length})
    digests = [hashlib.sha256(data[i : i + 8192]).digest() for i in range(0, length, 8192)]
    transfer = Transfer(
        str(path), length, [(0, length, memory.addresses["x"])], 8192, Algorithm.SHA256,
        b"".join(digests),
    )  # fmt: skip
    session.read(transfer)
    assert memory.read("x") == data
