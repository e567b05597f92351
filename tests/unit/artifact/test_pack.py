from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coldsnap.artifact.canonical import dumps
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.pack import ExtentSource, PackRef, open_pack, write_pack, write_pack_as
from coldsnap.artifact.pack_index import ALIGNMENT, read_index, tree_digest

EXTENTS = [("a", 10_000, b"a" * 10_000), ("b", 0, b""), ("c", 1, b"c"), ("d", 4096, b"d" * 4096)]


def code_of(action: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(ColdSnapError) as caught:
        action(*arguments, **options)
    return caught.value.code


@pytest.fixture
def pack(tmp_path: Path) -> PackRef:
    return write_pack(tmp_path, EXTENTS, chunk_bytes=4096)


def change_index(pack: PackRef, change: Any) -> None:
    value = json.loads(pack.index.read_bytes())
    change(value)
    pack.index.chmod(0o600)
    pack.index.write_text(dumps(value))


def test_layout_is_the_documented_one(pack: PackRef) -> None:
    body = pack.body.read_bytes()
    assert pack.body.name == hashlib.sha256(body).hexdigest() + ".pack"
    assert pack.index.name == hashlib.sha256(body).hexdigest() + ".index.json"
    padding = (bytes(12_288 - 10_000), b"", bytes(4095), b"")
    assert body == b"".join(x[2] + p for x, p in zip(EXTENTS, padding, strict=True))
    index = json.loads(pack.index.read_bytes())
    assert [x["offset"] for x in index["extents"]] == [0, 12_288, 12_288, 16_384]
    assert all(x["offset"] % ALIGNMENT == 0 for x in index["extents"])
    assert len(index["extents"][0]["chunks"]) == 3
    assert index["chunk"] == {"algorithm": "sha256", "bytes": 4096}
    assert pack.index.read_text() == dumps(index)
    assert pack.index_sha256 == "sha256:" + hashlib.sha256(pack.index.read_bytes()).hexdigest()


def test_the_tree_is_rfc_6962s() -> None:
    def leaf(data: bytes) -> bytes:
        return hashlib.sha256(b"\0" + data).digest()

    def node(left: bytes, right: bytes) -> bytes:
        return hashlib.sha256(b"\1" + left + right).digest()

    chunks = [hashlib.sha256(bytes([i])).digest() for i in range(5)]
    a, b, c, d, e = map(leaf, chunks)
    root = node(node(node(a, b), node(c, d)), e)
    assert tree_digest([chunk.hex() for chunk in chunks]) == "sha256:" + root.hex()
    assert tree_digest([]) == "sha256:" + hashlib.sha256(b"").hexdigest()


LETTERS = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Z"))
extent_lists = st.dictionaries(
    st.text(LETTERS, min_size=1, max_size=6), st.binary(max_size=9000), max_size=8
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(extents=extent_lists, chunk=st.sampled_from([4096, 8192, 1 << 20]), stream=st.booleans())
def test_round_trip(tmp_path: Path, extents: dict[str, bytes], chunk: int, stream: bool) -> None:
    sources = [
        ExtentSource(name, len(data), io.BytesIO(data) if stream else data, {"dtype": "u8"})
        for name, data in sorted(extents.items())
    ]
    pack = write_pack(tmp_path, sources, chunk_bytes=chunk)
    with open_pack(
        pack.body, pack.index, index_sha256=pack.index_sha256, body_sha256=pack.sha256
    ) as reader:
        assert {x.id: reader.read(x.id) for x in reader.extents} == extents
        assert {x.id: b"".join(c for _, c in reader.chunks(x.id)) for x in reader.extents} == (
            extents
        )
        assert reader.verify() == pack.bytes == pack.body.stat().st_size


def test_equal_content_gives_equal_files(tmp_path: Path) -> None:
    one = write_pack(tmp_path / "1", EXTENTS)
    two = write_pack(tmp_path / "2", (x for x in EXTENTS))
    assert (one.sha256, one.index_sha256) == (two.sha256, two.index_sha256)


def test_a_hundred_thousand_extents(tmp_path: Path) -> None:
    pack = write_pack(tmp_path, ((f"e{i:06}", i % 3, b"xyz"[: i % 3]) for i in range(100_000)))
    with open_pack(pack.body, pack.index, index_sha256=pack.index_sha256) as reader:
        assert len(reader.extents) == 100_000
        assert reader.read("e099998") == b"xy"
        assert reader.verify(["e000001", "e099998"]) == 2 * ALIGNMENT


def test_any_flipped_byte_is_found_and_its_extent_named(pack: PackRef) -> None:
    pack.body.chmod(0o600)
    good = pack.body.read_bytes()
    for place in (0, 4095, 9_999, 10_000, 12_287, 12_288, 12_289, 16_384, 20_479):
        pack.body.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with open_pack(pack.body, pack.index) as reader, pytest.raises(ColdSnapError) as caught:
            reader.verify()
        extent = next(x for x in reversed(reader.extents) if x.offset <= place and x.length)
        assert f"extent {extent.id!r}" in caught.value.message
        in_padding = place >= extent.offset + extent.length
        assert caught.value.code == ("pack.padding" if in_padding else "pack.chunk-differs")


def test_any_flipped_byte_of_the_index_is_found(pack: PackRef) -> None:
    good = pack.index.read_bytes()
    pack.index.chmod(0o600)
    for place in range(0, len(good), 37):
        pack.index.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        code = code_of(open_pack, pack.body, pack.index, index_sha256=pack.index_sha256)
        assert code == "pack.index-differs"


def test_partial_verification_ignores_other_extents(pack: PackRef) -> None:
    pack.body.chmod(0o600)
    data = bytearray(pack.body.read_bytes())
    data[0] ^= 1
    pack.body.write_bytes(data)
    with open_pack(pack.body, pack.index) as reader:
        assert reader.verify(["c", "d"]) == 8192
        assert reader.read("d") == b"d" * 4096
        assert code_of(reader.read, "a") == "pack.chunk-differs"
        assert code_of(reader.read, "x") == "pack.no-such-extent"
        assert code_of(reader.read_into, "d", bytearray(4095)) == "pack.buffer-short"


def swap(value: Any) -> None:
    value["extents"][0], value["extents"][1] = value["extents"][1], value["extents"][0]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (swap, "pack.unsorted"),
        (lambda v: v["extents"].insert(1, v["extents"][0]), "pack.duplicate"),
        (lambda v: v["extents"][3].update(offset=12_288), "pack.overlap"),
        (lambda v: v["extents"][3].update(offset=20_480), "pack.gap"),
        (lambda v: v["extents"][3].update(offset=16_385), "pack.gap"),
        (lambda v: v["body"].update(bytes=1 << 50), "pack.size"),
        (lambda v: v["extents"][3].update(length=1 << 50), "pack.chunks"),
        (lambda v: v["extents"][3].update(length=1 << 60), "pack.index-invalid"),
        (lambda v: v["extents"][3].update(length=-1), "pack.index-invalid"),
        (lambda v: v["extents"][0]["chunks"].pop(), "pack.chunks"),
        (lambda v: v["extents"][0]["chunks"].reverse(), "pack.tree"),
        (lambda v: v["extents"][3].update(sha256="sha256:" + "0" * 64), "pack.chunks"),
        (lambda v: v["chunk"].update(bytes=1), "pack.index-invalid"),
        (lambda v: v["chunk"].update(bytes=1 << 40), "pack.index-invalid"),
        (lambda v: v["chunk"].update(algorithm="md5"), "pack.index-invalid"),
        (lambda v: v.update(format=2), "pack.index-invalid"),
        (lambda v: v.update(surprise=1), "pack.index-invalid"),
        (lambda v: v["extents"][0].update(id=" a"), "pack.index-invalid"),
    ],
)
def test_hostile_indexes_are_refused(pack: PackRef, change: Any, code: str) -> None:
    change_index(pack, change)
    assert code_of(open_pack, pack.body, pack.index) == code


def test_bodies_that_are_no_files_of_that_size_are_refused(pack: PackRef, tmp_path: Path) -> None:
    link, fifo = tmp_path / "link", tmp_path / "fifo"
    link.symlink_to(pack.body)
    os.mkfifo(fifo)
    for path in (link, fifo, tmp_path):
        assert code_of(open_pack, path, pack.index) == "file.not-regular"
        assert code_of(open_pack, pack.body, path) == "file.not-regular"
    assert code_of(open_pack, tmp_path / "none", pack.index) == "file.missing"
    pack.body.chmod(0o600)
    for size, code in ((pack.bytes - 1, "pack.short"), (pack.bytes + 1, "pack.grown")):
        os.truncate(pack.body, size)
        assert code_of(open_pack, pack.body, pack.index) == code


def test_another_pack_than_the_wanted_one_is_refused(pack: PackRef) -> None:
    other = "sha256:" + "0" * 64
    assert code_of(open_pack, pack.body, pack.index, body_sha256=other) == "pack.body-differs"


def test_a_body_cut_while_it_is_open_is_found(pack: PackRef) -> None:
    pack.body.chmod(0o600)
    with open_pack(pack.body, pack.index) as reader:
        os.truncate(pack.body, 5000)
        assert code_of(reader.read, "a") == "pack.short"
        assert code_of(reader.verify) == "pack.short"


@pytest.mark.parametrize(
    ("extents", "code"),
    [
        ([("b", 1, b"b"), ("a", 1, b"a")], "pack.unsorted"),
        ([("a", 1, b"a"), ("a", 1, b"a")], "pack.duplicate"),
        ([("a", 2, b"a")], "pack.source-short"),
        ([("a", 1, b"aa")], "pack.source-long"),
        ([("a", 9, io.BytesIO(b"12345678"))], "pack.source-short"),
        ([(" a", 1, b"a")], "pack.index-invalid"),
    ],
)
def test_a_failed_write_leaves_nothing(tmp_path: Path, extents: Any, code: str) -> None:
    assert code_of(write_pack, tmp_path / "new", extents) == code
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_rewrite_under_fixed_names_replaces_both(tmp_path: Path) -> None:
    body, index = tmp_path / "payload.pack", tmp_path / "payload.index.json"
    write_pack_as(body, index, EXTENTS)
    second = write_pack_as(body, index, EXTENTS[:1], attributes={"model": "tiny"})
    with open_pack(body, index, body_sha256=second.sha256) as reader:
        reader.verify()
        assert reader.index.attributes == {"model": "tiny"}


WRITER = """
import sys
from coldsnap.artifact.pack import write_pack_as

class Slow:
    def readinto(self, buffer):
        print("writing", flush=True)
        sys.stdin.read(1)
        return len(buffer)

write_pack_as(sys.argv[1], sys.argv[2], [("a", 1 << 20, b"a" * (1 << 20)), ("b", 99, Slow())])
"""


def test_a_killed_writer_leaves_the_old_pack_whole(tmp_path: Path) -> None:
    body, index = tmp_path / "payload.pack", tmp_path / "payload.index.json"
    old = write_pack_as(body, index, EXTENTS)
    argv = [sys.executable, "-c", WRITER, str(body), str(index)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    with open_pack(body, index, body_sha256=old.sha256) as reader:
        reader.verify()


def test_find_is_right_for_every_id() -> None:
    extents, at = [], 0
    for number in range(50):
        empty = "sha256:" + hashlib.sha256().hexdigest()
        extents.append(
            {"id": f"{number:03}", "offset": at, "length": 0, "sha256": empty, "chunks": [],
             "tree": empty}
        )  # fmt: skip
    index = read_index(
        dumps(
            {
                "body": {"bytes": 0, "sha256": empty},
                "chunk": {"bytes": 4096, "algorithm": "sha256"},
                "extents": extents,
            }
        ).encode()
    )
    assert [index.find(x.id) for x in index.extents] == list(index.extents)
    for missing in ("", "0005", "999", "00"):
        assert code_of(index.find, missing) == "pack.no-such-extent"


def test_progress_counts_every_byte(tmp_path: Path) -> None:
    seen: list[int] = []
    pack = write_pack(tmp_path, EXTENTS, chunk_bytes=4096, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == pack.bytes


def test_a_pack_has_no_name_while_it_is_written(tmp_path: Path) -> None:
    """Nothing with the final name exists while the body is written."""
    names: list[list[str]] = []

    class Watching:
        def readinto(self, buffer: memoryview) -> int:
            names.append([p.name for p in (tmp_path / "sha256").iterdir() if p.suffix != ".tmp"])
            return len(buffer)

    write_pack(tmp_path, [("a", 100, Watching())])
    assert names == [[]]
