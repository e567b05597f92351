"""A payload is verified apart from the capsule: a bad one costs the payload, not the restore."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.oci.collect import collect
from coldsnap.artifact.oci.contents import load_contents
from coldsnap.artifact.oci.layout import Store, open_store
from coldsnap.artifact.oci.materialise import materialise
from coldsnap.artifact.oci.quarantine import condemn, reason_against
from coldsnap.artifact.oci.verify import verify
from coldsnap.artifact.weights import PAYLOAD_ROLE


@pytest.fixture
def stored(publish_capture, store: Path) -> tuple[Store, str, Path]:
    """(store, manifest, the payload's blob)."""
    manifest = publish_capture().manifest
    opened = open_store(store)
    layers = load_contents(opened, manifest).manifest.files()
    pack = next(layer for layer in layers if layer.role == PAYLOAD_ROLE)
    return opened, manifest, opened.blob(pack.digest)


def damage(blob: Path) -> None:
    data = bytearray(blob.read_bytes())
    data[len(data) // 2] ^= 1
    blob.chmod(0o600)
    blob.write_bytes(data)


def laid_out(folder: Path) -> list[str]:
    return [path.suffix for path in folder.rglob("*") if "model-payloads" in str(path.parent)]


@pytest.mark.parametrize("spoil", [damage, Path.unlink])
def test_a_bad_payload_is_left_out_with_its_reason(stored, tmp_path, spoil):
    store, manifest, blob = stored
    spoil(blob)
    done = materialise(store, manifest, tmp_path / "image", payload="optional")
    assert done.payload_fault is not None
    assert blob.name in done.payload_fault.message
    assert not laid_out(tmp_path / "image"), "it is never used"
    assert (tmp_path / "image" / "capture.json").exists()


@pytest.mark.parametrize("spoil", [damage, Path.unlink])
def test_where_it_is_demanded_it_is_refused_by_name(stored, tmp_path, spoil):
    store, manifest, blob = stored
    spoil(blob)
    with pytest.raises(ColdSnapError, match=blob.name) as caught:
        materialise(store, manifest, tmp_path / "image")
    assert caught.value.code in {"store.blob-differs", "store.blob-missing"}
    assert not (tmp_path / "image").exists()


def test_nobody_looks_at_a_payload_that_is_not_wanted(stored, tmp_path):
    store, manifest, blob = stored
    damage(blob)
    done = materialise(store, manifest, tmp_path / "image", payload="none", policy="full")
    assert done.payload_fault is None
    assert not laid_out(tmp_path / "image")


def test_a_damaged_capsule_is_refused_whatever_the_payload(stored, tmp_path):
    store, manifest, _ = stored
    files = load_contents(store, manifest).manifest.files()
    capsule = next(x for x in files if x.path == "criu/pages-1.img")
    damage(store.blob(capsule.digest))
    with pytest.raises(ColdSnapError, match=capsule.path):
        materialise(store, manifest, tmp_path / "image", payload="optional")


def test_a_damaged_one_is_quarantined_until_it_is_sound(stored, tmp_path):
    store, manifest, blob = stored
    digest = f"sha256:{blob.name}"
    sound = blob.read_bytes()
    damage(blob)
    materialise(store, manifest, tmp_path / "a", payload="optional")
    assert reason_against(store, digest)
    again = materialise(store, manifest, tmp_path / "b", payload="optional")
    assert again.payload_fault is not None
    assert again.payload_fault.code == "store.blob-quarantined", "and is not read again each time"
    assert again.bytes_hashed == 0
    assert blob.exists(), "nothing is removed"
    blob.chmod(0o600)
    blob.write_bytes(sound)
    verify(store, manifest)
    assert not reason_against(store, digest)
    assert materialise(store, manifest, tmp_path / "c", payload="optional").payload_fault is None


def test_a_note_is_bound_to_the_file_and_goes_with_it(stored, publish_capture):
    store, _, blob = stored
    digest = f"sha256:{blob.name}"
    assert condemn(store, digest, "chunk 3 differs")
    assert not store.record(digest).exists()
    blob.unlink()
    assert not condemn(store, digest, "again"), "there is nothing to condemn"
    publish_capture()
    assert not reason_against(store, digest), "another file of the same bytes"
    store.write_index({"manifests": []})
    collect(store)
    assert not list((store.root / "quarantine").iterdir())
