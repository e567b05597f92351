"""Where the extents of a payload pack belong, and which packs are refused."""

from __future__ import annotations

import pytest

from coldsnap.artifact.pack import ExtentSource, open_pack, write_pack_as
from coldsnap_inside_vllm import payload
from coldsnap_inside_vllm.exporting import Exporting
from coldsnap_inside_vllm.layout import Region, cover, layout_sha256

HERE = [Region(1 << 20, 10_000), Region(2 << 20, 5000)]
TENSORS = [("w", Region((1 << 20) + 100, 6000))]


@pytest.fixture
def pack(tmp_path):
    sources = [
        ExtentSource(
            part.id,
            part.bytes,
            bytes(part.bytes),
            {"allocation": str(part.allocation), "offset": str(part.offset)},
        )
        for part in cover(HERE, TENSORS)
    ]
    names = tmp_path / "payload.pack", tmp_path / "payload.index.json"
    write_pack_as(*names, sources, attributes={"layout": layout_sha256(HERE)})
    return [str(name) for name in names]


def test_every_extent_finds_its_place_at_other_addresses(pack):
    moved = [Region(region.address + (5 << 20), region.bytes) for region in HERE]
    with open_pack(*pack) as reader:
        layout = reader.index.attributes["layout"]
        places = payload.places_of(reader.index.extents, moved, layout)
    assert places["model/w"] == moved[0].address + 100
    assert len(places) == 4


def test_another_layout_is_refused(pack):
    with pytest.raises(RuntimeError, match="another memory layout"):
        payload.load(*pack, [Region(0, 1)], 0)


def test_a_pack_with_a_hole_is_refused(pack):
    with open_pack(*pack) as reader:
        layout = reader.index.attributes["layout"]
        with pytest.raises(RuntimeError, match="does not cover"):
            payload.places_of(reader.index.extents[1:], HERE, layout)


def test_no_library_no_payload(tmp_path, monkeypatch):
    monkeypatch.setattr(payload, "load_library", lambda: None)
    (tmp_path / payload.PACK).touch()
    with pytest.raises(payload.NoLibraryError):
        payload.export(str(tmp_path), HERE, TENSORS, 0)
    assert not list(tmp_path.iterdir()), "nothing of an earlier capture stays"


def test_a_thread_writes_it_and_tells_how_it_ended(tmp_path, monkeypatch):
    folder = tmp_path / "materialized"
    monkeypatch.setattr(payload, "export", lambda *given: payload.Moved(len(given), extents=3))
    work = Exporting(str(folder), HERE, TENSORS, 0)
    work.start()
    work.join()
    assert work.result == {"bytes": 4, "extents": 3}
    assert folder.is_dir()

    def fail(*_given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(payload, "export", fail)
    work = Exporting(str(folder), HERE, TENSORS, 0)
    work.start()
    work.join()
    assert "No space left" in work.result["error"]
