"""Packs in two steps: what a draft becomes, and what stops it."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from host_memory import CHUNK, LENGTHS, Memory

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import sha256_file
from coldsnap.artifact.pack import PackRef, open_pack
from coldsnap.artifact.pack_index import read_index
from coldsnap_runtime.hydrate import (
    Library,
    Options,
    Region,
    Session,
    Source,
    finish_draft,
    hydrate_pack,
    is_draft,
    write_draft,
)
from coldsnap_runtime.hydrate.structures import Io, Place
from coldsnap_runtime.payload_draft import finish_payload


@pytest.fixture
def sources(memory: Memory, contents: dict[str, bytes]) -> list[Source]:
    for name, data in contents.items():
        ctypes.memmove(memory.addresses[name], data, len(data))
    return [Source(name, length, memory.addresses[name]) for name, length in LENGTHS.items()]


def paths(folder: Path) -> tuple[Path, Path]:
    folder.mkdir(exist_ok=True)
    return folder / "payload.pack", folder / "payload.index.json"


def test_a_finished_draft_is_the_pack(
    session: Session,
    library: Library,
    sources: list[Source],
    contents: dict[str, bytes],
    ref: PackRef,
    tmp_path: Path,
) -> None:
    body, index = paths(tmp_path / "new")
    options = Options(chunk_bytes=CHUNK, attributes={"layout": "x"})
    assert write_draft(session, body, index, sources, options) == ref.bytes
    assert body.read_bytes() == ref.body.read_bytes()
    assert sorted(path.name for path in body.parent.iterdir()) == [index.name, body.name]
    # A draft brings its bytes back, but is no pack yet.
    with open_pack(body, index) as draft:
        assert is_draft(draft.index)
        back = Memory(LENGTHS)
        hydrate_pack(session, draft, back.addresses)
        assert {name: back.read(name) for name in contents} == contents
        with pytest.raises(ColdSnapError, match="-differs"):
            draft.verify()
    made = finish_draft(library, body, index)
    assert (made.sha256, made.bytes) == (ref.sha256, ref.bytes)
    assert sorted(path.name for path in body.parent.iterdir()) == [index.name, body.name]
    with open_pack(body, index, index_sha256=made.index_sha256) as pack:
        assert pack.index.attributes == {"layout": "x"}
        assert not is_draft(pack.index)
        assert pack.verify() == ref.bytes


def test_a_draft_from_a_device(
    library: Library, fake_cuda: Path, sources: list[Source], ref: PackRef, tmp_path: Path
) -> None:
    body, index = paths(tmp_path / "new")
    driver = str(fake_cuda)
    with (
        open_pack(ref.body, ref.index) as pack,
        Region(library, 1 << 20, cuda_library=driver) as region,
        Session(library, Place.CUDA, io=Io.BUFFERED, threads=3, cuda_library=driver) as device,
    ):
        addresses = {
            source.id: region.address + 65_536 * number * 6 for number, source in enumerate(sources)
        }
        addresses["f"] = region.address + 65_536 * 3
        hydrate_pack(device, pack, {k: v for k, v in addresses.items() if k in "cf"})
        chosen = [Source(name, LENGTHS[name], addresses[name]) for name in "cf"]
        write_draft(device, body, index, chosen)
    made = finish_draft(library, body, index)
    with open_pack(body, index) as written, open_pack(ref.body, ref.index) as original:
        assert written.read("f") == original.read("f")
        assert made.sha256 == written.index.body.sha256


@pytest.mark.parametrize("place", ["chunk", "padding", "length"])
def test_a_body_that_is_not_what_was_in_memory(
    session: Session, library: Library, sources: list[Source], tmp_path: Path, place: str
) -> None:
    body, index = paths(tmp_path / "new")
    write_draft(session, body, index, sources, Options(chunk_bytes=CHUNK))
    body.chmod(0o600)
    with body.open("r+b") as file:
        if place == "length":
            file.truncate(body.stat().st_size - 4096)
        else:
            at = -1 if place == "padding" else -300_000
            file.seek(at, 2)
            byte = file.read(1)[0]
            file.seek(at, 2)
            file.write(bytes([byte ^ 1]))
    code = {"chunk": "chunk-differs", "padding": "padding", "length": "short"}[place]
    with pytest.raises(ColdSnapError, match=rf"pack\.{code}"):
        finish_draft(library, body, index)
    assert is_draft(read_index(index.read_bytes()))


def test_a_draft_of_nothing(session: Session, library: Library, tmp_path: Path) -> None:
    body, index = paths(tmp_path / "new")
    assert write_draft(session, body, index, []) == 0
    made = finish_draft(library, body, index)
    assert made.sha256.endswith("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")


def test_a_capture_completes_the_draft_of_its_engine(
    monkeypatch: pytest.MonkeyPatch,
    session: Session,
    library: Library,
    sources: list[Source],
    ref: PackRef,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("COLDSNAP_HYDRATE_LIBRARY", library.path)
    body, index = paths(tmp_path / "payload")
    assert finish_payload(body.parent, 2) == {}
    write_draft(session, body, index, sources)
    known = finish_payload(body.parent, 2)
    assert known == {body: ref.sha256, index: sha256_file(index)}
    assert finish_payload(body.parent, 2) == {}, "it is no draft any more"
    write_draft(session, body, index, sources)
    body.chmod(0o600)
    with body.open("r+b") as file:
        file.write(b"\x00\x01\x02\x03\x04\x05\x06\x07")
    with pytest.raises(ColdSnapError, match=r"checkpoint\.payload-damaged") as caught:
        finish_payload(body.parent, 2)
    assert "extent 'a', chunk 0" in caught.value.details[0]
    monkeypatch.setenv("COLDSNAP_HYDRATE_LIBRARY", "")
    with pytest.raises(ColdSnapError, match=r"hydrate\.library"):
        finish_payload(body.parent, 2)


ENGINE = """
import ctypes, sys
from coldsnap_inside_vllm import payload
from coldsnap_inside_vllm.layout import Region
folder = sys.argv[1]
def memory(byte):
    made = ctypes.create_string_buffer(bytes([byte]) * 700_000, 700_000)
    return made, [Region(ctypes.addressof(made), 500_000),
                  Region(ctypes.addressof(made) + 500_000, 200_000)]
old, here = memory(7)
ctypes.memset(ctypes.addressof(old) + 100, 9, 6000)
written = payload.export(folder, here, [("w", Region(here[0].address + 100, 6000))], 0)
new, there = memory(0)
loaded = payload.load(f"{folder}/payload.pack", f"{folder}/payload.index.json", there, 0)
assert new.raw == old.raw
assert loaded.bytes == 700_000 <= written.bytes, (loaded, written)
"""


def test_what_vllm_exports_comes_back_before_and_after_it_is_finished(
    monkeypatch: pytest.MonkeyPatch, library: Library, fake_cuda: Path, tmp_path: Path
) -> None:
    shutil.copyfile(fake_cuda, tmp_path / "libcuda.so.1")
    folder = tmp_path / "payload"
    folder.mkdir()
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", ENGINE, str(folder)],
        env={
            **os.environ, "PYTHONPATH": f"{root}:{root / 'runtime'}",
            "LD_LIBRARY_PATH": str(tmp_path), "COLDSNAP_HYDRATE_LIBRARY": library.path,
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    monkeypatch.setenv("COLDSNAP_HYDRATE_LIBRARY", library.path)
    known = finish_payload(folder, 0)
    pack, index = folder / "payload.pack", folder / "payload.index.json"
    assert known[pack] == sha256_file(pack)
    with open_pack(pack, index) as reader:
        assert reader.verify() == pack.stat().st_size
        assert reader.read("model/w") == b"\x09" * 6000
