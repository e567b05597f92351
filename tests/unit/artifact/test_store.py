from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.oci import ingest
from coldsnap.artifact.oci.collect import collect, delete
from coldsnap.artifact.oci.layout import create_store, open_store
from coldsnap.artifact.oci.materialise import check_paths, materialise
from coldsnap.artifact.oci.media import ARTIFACT_TYPE, canonical_blob
from coldsnap.artifact.oci.pins import pin, pins, unpin
from coldsnap.artifact.oci.publish import Published, publish, tag
from coldsnap.artifact.oci.read import find, inspect, list_artifacts, load, missing_files, resolve
from coldsnap.artifact.oci.verify import verify

Publisher = Callable[..., Published]
OTHER = "sha256:" + "b" * 64


def code_of(action: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(ColdSnapError) as caught:
        action(*arguments, **options)
    return caught.value.code


def blobs(store: Path) -> set[str]:
    return {path.name for path in (store / "blobs" / "sha256").iterdir()}


def test_it_is_an_oci_image_layout(publish_capture: Publisher, store: Path) -> None:
    done = publish_capture()
    assert json.loads((store / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads((store / "index.json").read_text())
    (entry,) = index["manifests"]
    assert entry["digest"] == done.manifest
    assert entry["artifactType"] == ARTIFACT_TYPE
    assert entry["annotations"]["org.opencontainers.image.ref.name"] == "latest"
    manifest = json.loads((store / "blobs/sha256" / done.manifest[7:]).read_text())
    assert manifest["schemaVersion"] == 2
    assert all(
        layer["annotations"]["org.opencontainers.image.title"] for layer in manifest["layers"]
    )
    types = {layer["mediaType"].rsplit("coldsnap.", 1)[1] for layer in manifest["layers"]}
    assert {"criu.image.v1", "payload.pack.v1", "payload.index.v1+json", "shm.file.v1"} <= types
    modes = {path.stat().st_mode & 0o777 for path in (store / "blobs" / "sha256").iterdir()}
    assert modes == {0o400}
    assert store.stat().st_mode & 0o777 == 0o700


def test_publishing_links_and_dedupes(
    publish_capture: Publisher, store: Path, tmp_path: Path
) -> None:
    done = publish_capture()
    assert done.bytes_copied == 0
    capture = next(tmp_path.glob("capture-*"))
    twins = [(capture / f"caches/{n}/kernel.so").stat() for n in (0, 1)]
    inodes = {path.stat().st_ino for path in (store / "blobs" / "sha256").iterdir()}
    assert {twin.st_ino for twin in twins} & inodes
    assert done.bytes_added == done.bytes - 204
    again = publish_capture()
    assert (again.manifest, again.bytes_added) == (done.manifest, 0)
    assert len(list_artifacts(open_store(store))) == 1


def test_unchanged_measured_files_are_not_read_again(
    publish_capture: Publisher, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    monkeypatch.setattr(ingest, "_check", lambda path, item: read.append(item.path))
    publish_capture()
    assert read == []
    assert (
        verify(open_store(store), "sha256:" + next(iter(_manifests(store))), "record").bytes_hashed
        == 0
    )


def _manifests(store: Path) -> list[str]:
    return [entry.manifest[7:] for entry in list_artifacts(open_store(store))]


def test_a_repeated_publish_needs_no_capture_any_more(
    tmp_path: Path, store: Path, capture: Any, draft: Any
) -> None:
    folder = tmp_path / "capture"
    description = draft(capture(folder))
    done = publish(store, folder, description, ["a"])
    for path in folder.rglob("*"):
        if path.is_file():
            path.unlink()
    assert publish(store, folder, description, ["b"]).manifest == done.manifest
    (entry,) = list_artifacts(open_store(store))
    assert entry.tags == ("a", "b")


def replaced(folder: Path, make: Callable[[Path], object]) -> None:
    (folder / "capture.json").unlink()
    make(folder / "capture.json")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda f: (f / "capture.json").write_bytes(b'{"pid": 8}'), "store.source-differs"),
        (lambda f: (f / "capture.json").write_bytes(b""), "store.source-differs"),
        (lambda f: (f / "capture.json").unlink(), "store.source-missing"),
        (lambda f: replaced(f, os.mkfifo), "file.not-regular"),
        (lambda f: replaced(f, lambda p: p.symlink_to("/etc/passwd")), "file.not-regular"),
        (
            lambda f: ((f / "criu").rename(f / "real"), (f / "criu").symlink_to(f / "real")),
            "store.source-differs",
        ),
    ],
)  # fmt: skip
def test_a_capture_that_is_not_what_was_captured_is_refused(
    tmp_path: Path, store: Path, capture: Any, draft: Any, change: Any, code: str
) -> None:
    folder = tmp_path / "capture"
    description = draft(capture(folder))
    change(folder)
    assert code_of(publish, store, folder, description, ["a"]) == code
    assert list_artifacts(open_store(store)) == []


def test_tags_move_and_old_artifacts_stay(publish_capture: Publisher, store: Path) -> None:
    one, two = publish_capture("one"), publish_capture("two")
    opened = open_store(store)
    assert [(e.manifest, e.tags) for e in list_artifacts(opened)] == [
        (one.manifest, ()),
        (two.manifest, ("latest",)),
    ]
    tag(opened, one.manifest, ["latest", "stable"])
    assert find(opened, "stable").digest == find(opened, "latest").digest == one.manifest
    assert [e.manifest for e in list_artifacts(opened)] == [one.manifest, two.manifest]
    tag(opened, None, ["stable"])
    assert resolve(opened, "stable") is None
    assert code_of(tag, opened, OTHER, ["x"]) == "store.no-such-artifact"
    assert code_of(tag, opened, one.manifest, ["-x"]) == "store.tag-invalid"


def test_resolving(publish_capture: Publisher, store: Path) -> None:
    one = publish_capture("one", tags=["a"])
    two = publish_capture("two", tags=["b"])
    other = publish_capture("three", tags=["c"], changes={"request_sha256": OTHER})
    opened = open_store(store)
    request = one.descriptor.request_sha256
    found = resolve(opened, request_sha256=request)
    assert found is not None
    assert found.digest == two.manifest
    assert resolve(opened, request_sha256=OTHER, unit="u0").digest == other.manifest
    assert resolve(opened, request_sha256=OTHER, unit="u1") is None
    assert resolve(opened, request_sha256="sha256:" + "c" * 64) is None
    assert find(opened, one.manifest[:15]).digest == one.manifest
    assert find(opened, one.manifest[7:15]).digest == one.manifest
    assert code_of(find, opened, "nothing") == "store.no-such-artifact"


def test_a_request_is_not_captured_while_a_file_is_missing(
    publish_capture: Publisher, store: Path
) -> None:
    done = publish_capture()
    opened = open_store(store)
    artifact = load(opened, done.manifest)
    victim = next(f for f in artifact.manifest.files() if f.path == "criu/pages-1.img")
    opened.blob(victim.digest).unlink()
    assert missing_files(opened, artifact) == ["criu/pages-1.img"]
    assert resolve(opened, request_sha256=done.descriptor.request_sha256) is None
    assert resolve(opened, "latest") is not None


def test_inspecting_adds_up(publish_capture: Publisher, store: Path) -> None:
    done = publish_capture()
    told = inspect(find(open_store(store), "latest"))
    assert told["manifest"] == done.manifest
    assert sum(told["bytes_by_role"].values()) == told["bytes"] == done.bytes
    assert sum(told["bytes_by_owner"].values()) == done.bytes
    assert told["descriptor"]["kind"] == "coldsnap-snapshot-artifact"


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)


@pytest.mark.parametrize("policy", ["record", "full"])
def test_any_flipped_byte_of_any_blob_is_found_and_named(
    publish_capture: Publisher, store: Path, tmp_path: Path, policy: Any
) -> None:
    done = publish_capture()
    opened = open_store(store)
    names = {f.digest[7:]: f.path for f in load(opened, done.manifest).manifest.files()}
    for blob in sorted((store / "blobs" / "sha256").iterdir()):
        good = blob.read_bytes()
        for place in sorted({0, len(good) // 2, len(good) - 1}) if good else ():
            flip(blob, place)
            with pytest.raises(ColdSnapError) as caught:
                materialise(opened, done.manifest, tmp_path / "image", policy=policy)
            assert caught.value.code == "store.blob-differs"
            assert (
                names.get(blob.name, "") in caught.value.message
                or "caches/" in caught.value.message
            )
            assert not (tmp_path / "image").exists()
            blob.write_bytes(good)
            blob.chmod(0o400)
    assert verify(opened, done.manifest, policy).bytes > 0


@pytest.mark.parametrize(
    ("damage", "code", "said"),
    [
        (lambda blob: blob.unlink(), "store.blob-missing", "criu/pages-1.img is missing"),
        (lambda blob: os.truncate(blob, 100), "store.blob-differs", "criu/pages-1.img is cut"),
        (
            lambda blob: (blob.unlink(), blob.symlink_to("/etc/passwd")),
            "store.blob-differs",
            "criu/pages-1.img is not a regular file",
        ),
        (
            lambda blob: (blob.unlink(), os.mkfifo(blob)),
            "store.blob-differs",
            "criu/pages-1.img is not a regular file",
        ),
    ],
)
def test_a_damaged_blob_is_named_before_anything_is_made(
    publish_capture: Publisher, store: Path, tmp_path: Path, damage: Any, code: str, said: str
) -> None:
    done = publish_capture()
    opened = open_store(store)
    files = load(opened, done.manifest).manifest.files()
    blob = opened.blob(next(f.digest for f in files if f.path == "criu/pages-1.img"))
    damage(blob)
    with pytest.raises(ColdSnapError) as caught:
        materialise(opened, done.manifest, tmp_path / "image")
    assert caught.value.code == code
    assert said in caught.value.message
    assert not (tmp_path / "image").exists()


def test_all_damaged_files_are_told_at_once(publish_capture: Publisher, store: Path) -> None:
    done = publish_capture()
    opened = open_store(store)
    for layer in load(opened, done.manifest).manifest.files():
        if layer.path.startswith("criu/"):
            opened.blob(layer.digest).unlink()
    with pytest.raises(ColdSnapError) as caught:
        verify(opened, done.manifest)
    assert len(caught.value.more) == 2


def test_publishing_again_heals_a_damaged_blob(publish_capture: Publisher, store: Path) -> None:
    done = publish_capture()
    opened = open_store(store)
    files = load(opened, done.manifest).manifest.files()
    flip(opened.blob(next(f.digest for f in files if f.path == "criu/pages-1.img")), 5)
    # The damaged bytes are the first capture's too (they are the same file): capture again.
    again = publish_capture()
    assert again.bytes_added == 9000
    assert verify(opened, done.manifest, "full").bytes_hashed > 0


def test_an_image_is_the_capture_without_copying(
    publish_capture: Publisher, store: Path, tmp_path: Path
) -> None:
    done = publish_capture()
    opened = open_store(store)
    made = materialise(opened, done.manifest, tmp_path / "image", pin="u0.1")
    assert made.bytes_copied == 0
    assert made.bytes_hashed == 0
    capture = next(tmp_path.glob("capture-*"))
    for item in done.descriptor.objects():
        path = tmp_path / "image" / item.path
        assert path.read_bytes() == (capture / item.path).read_bytes()
        assert path.stat().st_ino == opened.blob(item.sha256).stat().st_ino
    assert [p.manifest for p in pins(opened)] == [done.manifest]
    again = materialise(opened, done.manifest, tmp_path / "image")
    assert again.bytes == made.bytes
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize(
    "paths",
    [["../x"], ["/x"], ["a/../../x"], ["."], [""], ["a", "a"], ["a", "a/b"], ["a//b"], ["a\0"]],
)
def test_paths_that_lead_out_or_collide_are_refused(paths: list[str]) -> None:
    assert code_of(check_paths, paths) == "store.path-invalid"


def test_a_manifest_that_names_other_files_than_its_descriptor_is_refused(
    publish_capture: Publisher, store: Path
) -> None:
    done = publish_capture()
    opened = open_store(store)
    value = json.loads(opened.blob(done.manifest).read_text())
    for change in (
        lambda v: v["layers"][0]["annotations"].update(
            {"org.opencontainers.image.title": "../../etc/cron.d/x"}
        ),
        lambda v: v["layers"].pop(),
        lambda v: v["layers"][0].update(digest=v["layers"][2]["digest"]),
    ):
        evil = json.loads(json.dumps(value))
        change(evil)
        data, digest = canonical_blob(evil)
        opened.blob(digest).write_bytes(data)
        assert code_of(load, opened, digest) == "store.manifest-differs"


def test_collecting_keeps_generations_per_name(publish_capture: Publisher, store: Path) -> None:
    made = [publish_capture(f"s{n}", tags=["m"]) for n in range(4)]
    other = publish_capture("other", tags=["n"])
    opened = open_store(store)
    dry = collect(opened, 2, dry_run=True)
    assert set(dry.artifacts) == {made[0].manifest, made[1].manifest}
    assert len(list_artifacts(opened)) == 5
    done = collect(opened, 2)
    assert (done.artifacts, done.blobs, done.bytes) == (dry.artifacts, dry.blobs, dry.bytes)
    assert [e.manifest for e in list_artifacts(opened)] == [
        made[2].manifest, made[3].manifest, other.manifest,
    ]  # fmt: skip
    for manifest in (made[2].manifest, made[3].manifest, other.manifest):
        verify(opened, manifest, "full")
    assert not blobs(store) & {made[0].manifest[7:], made[1].manifest[7:]}
    assert {p.stem for p in (store / "records").iterdir()} <= blobs(store)
    assert code_of(collect, opened, 0) == "store.keep-invalid"


def test_shared_blobs_outlive_the_artifact_that_brought_them(
    publish_capture: Publisher, store: Path
) -> None:
    one, two = publish_capture("one", tags=["a"]), publish_capture("two", tags=["b"])
    opened = open_store(store)
    delete(opened, "a")
    assert resolve(opened, one.manifest) is None
    collect(opened)
    verify(opened, two.manifest, "full")
    assert collect(opened).blobs == 0
    assert code_of(delete, opened, "a") == "store.no-such-artifact"


def test_a_pinned_artifact_is_never_collected(publish_capture: Publisher, store: Path) -> None:
    one = publish_capture("one")
    publish_capture("two")
    opened = open_store(store)
    pin(opened, "u0.1", one.manifest)
    assert collect(opened, 1).pinned == (one.manifest,)
    delete(opened, one.manifest)
    collect(opened, 1)
    verify(opened, one.manifest, "full")
    unpin(opened, "u0.1")
    unpin(opened, "u0.1")
    collect(opened, 1)
    assert code_of(verify, opened, one.manifest) == "store.blob-missing"
    assert code_of(pin, opened, "../x", one.manifest) == "store.pin-invalid"


def test_a_collection_that_cannot_know_removes_nothing(
    publish_capture: Publisher, store: Path
) -> None:
    one = publish_capture("one", tags=["a"])
    publish_capture("two", tags=["b"])
    opened = open_store(store)
    delete(opened, "a")
    before = blobs(store)
    (store / "pins" / "u0.json").write_text("?")
    assert code_of(collect, opened) == "store.pin-invalid"
    (store / "pins" / "u0.json").unlink()
    opened.blob(find(opened, "b").digest).unlink()
    assert code_of(collect, opened) == "store.blob-missing"
    assert blobs(store) >= before - {find_name(before, store)}
    assert one.manifest[7:] in blobs(store)


def find_name(before: set[str], store: Path) -> str:
    (gone,) = before - blobs(store)
    return gone


def test_manifests_of_other_tools_keep_their_blobs(publish_capture: Publisher, store: Path) -> None:
    publish_capture()
    opened = open_store(store)
    layer, layer_digest = canonical_blob({"layer": 1})
    content = {"mediaType": "application/x", "digest": layer_digest, "size": len(layer)}
    image, image_digest = canonical_blob(
        {"schemaVersion": 2, "config": content, "layers": [content]}
    )
    inner = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": image_digest,
        "size": len(image),
    }
    nested, nested_digest = canonical_blob({"schemaVersion": 2, "manifests": [inner]})
    for data, digest in ((layer, layer_digest), (image, image_digest), (nested, nested_digest)):
        opened.blob(digest).write_bytes(data)
    index = opened.read_index()
    entry = {**inner, "mediaType": "application/vnd.oci.image.index.v1+json"}
    index["manifests"].append({**entry, "digest": nested_digest, "size": len(nested)})
    opened.write_index(index)
    collect(opened, 1)
    assert {layer_digest[7:], image_digest[7:], nested_digest[7:]} <= blobs(store)
    assert len(list_artifacts(opened)) == 1


def test_publishers_and_collections_at_once_lose_nothing(
    tmp_path: Path, store: Path, capture: Any, draft: Any
) -> None:
    drafts = []
    for number in range(6):
        folder = tmp_path / f"c{number}"
        drafts.append((folder, draft(capture(folder, seed=f"s{number}"))))
    errors: list[BaseException] = []

    def guarded(action: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            try:
                action()
            except BaseException as error:  # noqa: BLE001 - it is the result
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    create_store(store)
    opened = open_store(store)
    threads = []
    for number, (folder, description) in enumerate(drafts):
        threads.append(
            guarded(lambda f=folder, d=description, n=number: publish(store, f, d, [f"t{n}"]))
        )
        threads.append(guarded(lambda: collect(opened)))
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(list_artifacts(opened)) == 6
    for entry in list_artifacts(opened):
        verify(opened, entry.manifest, "full")


def test_folders_that_are_no_store(tmp_path: Path, store: Path) -> None:
    assert code_of(open_store, tmp_path / "none") == "store.missing"
    (tmp_path / "thesis.tex").write_text("")
    assert code_of(open_store, tmp_path) == "store.not-a-store"
    assert code_of(create_store, tmp_path) == "store.not-a-store"
    create_store(store)
    (store / "oci-layout").write_text('{"imageLayoutVersion":"2.0.0"}')
    assert code_of(open_store, store) == "store.not-a-store"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"manifests": 3}', '{"manifests": [3]}'])
def test_a_damaged_index_is_told(store: Path, text: str) -> None:
    opened = create_store(store)
    (store / "index.json").write_text(text)
    assert code_of(list_artifacts, opened) == "store.index-invalid"


def test_hostile_index_entries_are_left_out(publish_capture: Publisher, store: Path) -> None:
    publish_capture()
    opened = open_store(store)
    index = opened.read_index()
    good = index["manifests"][0]
    for bad in ({"digest": "sha256:../../x"}, {"digest": 3}, {"size": "x"}, {"annotations": 3}):
        index["manifests"].append({**good, "digest": OTHER, **bad})
    opened.write_index(index)
    assert {e.manifest for e in list_artifacts(opened)} == {good["digest"], OTHER}
