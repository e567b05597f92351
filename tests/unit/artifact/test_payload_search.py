"""Model bytes outside of a payload are found wherever they lie, and nothing else is."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coldsnap.artifact import payload_search
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.measure import measure
from coldsnap.artifact.oci.layout import open_store
from coldsnap.artifact.oci.payload_found import find_payload
from coldsnap.artifact.oci.publish import publish
from coldsnap.artifact.oci.read import find
from coldsnap.artifact.pack import open_pack, write_pack
from coldsnap.artifact.payload_samples import SAMPLE_BYTES, Sample, Samples, samples_of
from coldsnap.artifact.payload_search import search

EXTENTS = {
    "embedding": random.Random(1).randbytes(300_000),
    "layer.0": random.Random(2).randbytes(70_001),
    "norm": b"\x80\x3f" * 2048,
    "short": b"0123456789abcde",
    "tiny": b"0123",
}


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    extents = [(name, len(data), data) for name, data in EXTENTS.items()]
    pack = write_pack(tmp_path_factory.mktemp("pack"), extents)
    with open_pack(pack.body, pack.index) as reader, pack.body.open("rb") as body:
        return samples_of(body.fileno(), reader.extents)


def test_every_extent_that_tells_something_is_sampled(samples: Samples) -> None:
    assert samples.extents == 3
    assert set(samples.constant) == {"norm", "tiny"}
    found = {sample.extent: sample for sample in samples.found}
    assert set(found) == {"embedding", "layer.0", "short"}
    for sample in samples.found:
        data = EXTENTS[sample.extent]
        assert data[sample.offset : sample.offset + len(sample.data)] == sample.data
    per = [sample for sample in samples.found if sample.extent == "embedding"]
    assert len(per) == 4
    assert max(s.offset for s in per) > 200_000, "spread over the extent"


def image(size: int) -> bytearray:
    return bytearray(random.Random(3).randbytes(size))


@pytest.mark.parametrize("shift", range(8))
def test_a_copy_is_found_at_every_alignment(samples: Samples, tmp_path: Path, shift: int) -> None:
    data = image(1 << 20)
    at = 300_000 + shift
    whole = EXTENTS["layer.0"]
    data[at : at + len(whole)] = whole
    path = tmp_path / "pages-1.img"
    path.write_bytes(data)
    hits = search([("pages-1.img", path)], samples.found).hits
    mine = [sample for sample in samples.found if sample.extent == "layer.0"]
    assert {(hit.extent, hit.position - hit.offset) for hit in hits} == {("layer.0", at)}
    assert len(hits) == len(mine) == 4


def test_only_whole_samples_count(samples: Samples, tmp_path: Path) -> None:
    sample = next(s for s in samples.found if len(s.data) == SAMPLE_BYTES)
    data = image(100_000)
    data[5000 : 5000 + SAMPLE_BYTES - 1] = sample.data[:-1]
    path = tmp_path / "pages-1.img"
    path.write_bytes(data)
    assert search([("p", path)], samples.found).hits == ()
    data[5000 : 5000 + SAMPLE_BYTES] = sample.data
    path.write_bytes(data)
    (hit,) = search([("p", path)], samples.found).hits
    assert (hit.position, hit.extent, hit.offset) == (5000, sample.extent, sample.offset)


@pytest.mark.parametrize("at", [0, (1 << 20) - 30, (1 << 20) - 3, 4096 * 77 - 60, (2 << 20) - 64])
def test_ends_of_pieces_hide_nothing(samples: Samples, tmp_path: Path, at: int) -> None:
    sample = next(s for s in samples.found if len(s.data) == SAMPLE_BYTES)
    data = image(2 << 20)
    data[at : at + SAMPLE_BYTES] = sample.data
    path = tmp_path / "pages-1.img"
    path.write_bytes(data)
    assert [hit.position for hit in search([("p", path)], samples.found).hits] == [at]


def test_several_processes_find_the_same(
    samples: Samples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload_search, "_PART", 1 << 20)
    sample = samples.found[0]
    places = [17, (1 << 20) - 9, (3 << 20) + 5]
    data = image(4 << 20)
    for at in places:
        data[at : at + len(sample.data)] = sample.data
    paths = [tmp_path / "one", tmp_path / "two", tmp_path / "empty"]
    paths[0].write_bytes(data)
    paths[1].write_bytes(data)
    paths[2].write_bytes(b"")
    done: list[int] = []
    found = search([(p.name, p) for p in paths], samples.found, workers=3, progress=done.append)
    assert [(hit.file, hit.position) for hit in found.hits] == [
        (name, at) for name in ("one", "two") for at in places
    ]
    assert found.bytes == 8 << 20
    assert done[-1] == 8 << 20


def test_words_of_a_sample_cover_every_alignment() -> None:
    sample = Sample("x", 0, random.Random(4).randbytes(64))
    assert sorted(offset % 8 for _, offset in sample.words()) == list(range(8))


@pytest.mark.parametrize("planted", [False, True])
def test_an_artifact_with_model_bytes_in_its_image_is_found_out(
    tmp_path: Path,
    store: Path,
    capture: Callable[..., Any],
    draft: Callable[..., Any],
    *,
    planted: bool,
) -> None:
    folder = tmp_path / "capture"
    made = capture(folder, payload=False)
    pages = folder / "criu" / "pages-1.img"
    data = image(200_000)
    if planted:
        data[99_001 : 99_001 + 20_000] = EXTENTS["layer.0"][50_001:70_001]
    pages.write_bytes(data)
    extents = [(name, len(content), content) for name, content in EXTENTS.items()]
    write_pack(folder / "model-payloads", extents)
    publish(store, folder, draft(measured(folder, made)), ("demo",))
    opened = open_store(store)
    found = find_payload(opened, find(opened, "demo"), lambda _done: None)
    assert found.extents == 3
    assert found.payload_bytes == sum(len(content) for content in EXTENTS.values())
    assert {(hit.file, hit.extent) for hit in found.searched.hits} == (
        {("criu/pages-1.img", "layer.0")} if planted else set()
    )
    assert found.to_json()["found"] is planted


def measured(folder: Path, made: dict[str, Any]) -> dict[str, Any]:
    """The capture's objects as the files are now, and its payload."""
    pack, index = sorted((folder / "model-payloads").rglob("*.*"), key=lambda p: p.suffix)[::-1]
    roles = {item["path"]: item["role"] for item in made["objects"]}
    packs = {
        str(pack.relative_to(folder)): "model-weight-payload",
        str(index.relative_to(folder)): "model-weight-payload-index",
    }
    items = [
        {"role": role, "owner": "unit/u0", "path": path, "bytes": one.bytes, "sha256": one.sha256}
        for path, one in measure(folder, sorted(roles | packs)).items()
        for role in [(roles | packs)[path]]
    ]
    return {
        "objects": [item for item in items if item["path"] in roles],
        "payloads": [item for item in items if item["path"] in packs],
    }


def test_without_a_payload_nothing_is_claimed(
    tmp_path: Path, store: Path, capture: Callable[..., Any], draft: Callable[..., Any]
) -> None:
    folder = tmp_path / "capture"
    publish(store, folder, draft(capture(folder, payload=False)), ("demo",))
    opened = open_store(store)
    with pytest.raises(ColdSnapError) as raised:
        find_payload(opened, find(opened, "demo"), lambda _done: None)
    assert raised.value.code == "artifact.no-payload"


def test_no_link_is_followed(samples: Samples, tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"x" * 100)
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(ColdSnapError) as raised:
        search([("link", tmp_path / "link")], samples.found)
    assert raised.value.code == "file.not-regular"
