"""The store on real file systems that are full, odd or read-only, and under kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.oci.collect import collect, delete
from coldsnap.artifact.oci.layout import create_store, open_store
from coldsnap.artifact.oci.materialise import materialise
from coldsnap.artifact.oci.pins import pin
from coldsnap.artifact.oci.publish import Published, publish, tag
from coldsnap.artifact.oci.read import find, list_artifacts, resolve
from coldsnap.artifact.oci.verify import verify
from coldsnap.artifact.pack import write_pack

Publisher = Callable[..., Published]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")


@contextmanager
def mounted(folder: Path, *arguments: str) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", *arguments, str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=1m", "tmpfs") as folder:
        yield folder


def code_of(action: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(ColdSnapError) as caught:
        action(*arguments, **options)
    return caught.value.code


def fill(folder: Path) -> Path:
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        size = 1 << 16
        while size:
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                pass
            size //= 2
    return filler


@needs_root
def test_a_full_disk_leaves_the_store_as_it_was(
    publish_capture: Publisher, small_disk: Path
) -> None:
    store = small_disk / "store"
    done = publish_capture("one", store=store)
    assert done.bytes_copied > 0
    before = (store / "index.json").read_bytes()
    filler = fill(small_disk)
    with pytest.raises(ColdSnapError) as caught:
        publish_capture("two", store=store)
    assert caught.value.code == "file.disk-full"
    assert caught.value.remedy
    assert (store / "index.json").read_bytes() == before
    opened = open_store(store)
    assert [e.manifest for e in list_artifacts(opened)] == [done.manifest]
    assert verify(opened, done.manifest, "full").bytes > 0
    assert list((store / "staging").iterdir()) == []
    filler.unlink()
    second = publish_capture("two", store=store)
    assert verify(opened, second.manifest, "full").bytes > 0


@needs_root
def test_a_full_disk_stops_a_pack_and_leaves_nothing(small_disk: Path) -> None:
    data = os.urandom(1 << 21)
    assert code_of(write_pack, small_disk, [("a", len(data), data)]) == "file.disk-full"
    assert [path for path in small_disk.rglob("*") if path.is_file()] == []


@needs_root
def test_a_full_disk_at_every_write_of_a_publish(
    tmp_path: Path, small_disk: Path, capture: Any, draft: Any
) -> None:
    """Whatever the point where space ends, the store lists whole artifacts only."""
    store = small_disk / "store"
    folder = tmp_path / "capture"
    description = draft(capture(folder))
    create_store(store)
    outcomes = set()
    for room in range(0, 160_000, 8192):
        filler = fill(small_disk)
        os.truncate(filler, max(0, filler.stat().st_size - room))
        try:
            publish(store, folder, description, ["x"])
            outcomes.add("done")
        except ColdSnapError as error:
            outcomes.add(error.code)
        filler.unlink()
        opened = open_store(store)
        for entry in list_artifacts(opened):
            verify(opened, entry.manifest, "full")
        for entry in list_artifacts(opened):
            delete(opened, entry.manifest)
        collect(opened)
        assert list((store / "blobs" / "sha256").iterdir()) == []
    assert outcomes == {"done", "file.disk-full"}


@needs_root
def test_a_ramfs_that_claims_to_have_no_space(publish_capture: Publisher, tmp_path: Path) -> None:
    with mounted(tmp_path / "ram", "-t", "ramfs", "ramfs") as ram:
        assert os.statvfs(ram).f_bavail == 0
        done = publish_capture(store=ram / "store")
        made = materialise(open_store(ram / "store"), done.manifest, ram / "image")
        assert made.bytes_copied == 0
        # On another file system the files are copied, and it says so.
        far = materialise(open_store(ram / "store"), done.manifest, tmp_path / "image")
        assert far.bytes_copied == done.bytes


@needs_root
def test_a_read_only_store_serves_and_says_what_it_cannot(
    publish_capture: Publisher, store: Path, tmp_path: Path
) -> None:
    done = publish_capture()
    (store / "lock").unlink()
    with mounted(tmp_path / "ro", "--bind", str(store)) as folder:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True)
        opened = open_store(folder)
        assert find(opened, "latest").digest == done.manifest
        assert resolve(opened, request_sha256=done.descriptor.request_sha256) is not None
        assert verify(opened, done.manifest, "full").bytes > 0
        made = materialise(opened, done.manifest, tmp_path / "image", pin="u0.1")
        assert made.bytes_copied == done.bytes  # links do not cross mounts
        assert code_of(publish_capture, "two", store=folder) == "store.read-only"
        assert code_of(tag, opened, done.manifest, ["x"]) == "store.read-only"
        assert code_of(delete, opened, "latest") == "store.read-only"
        assert code_of(collect, opened) == "store.read-only"
        assert code_of(pin, opened, "u0.1", done.manifest) in ("store.read-only", "file.read-only")


PUBLISHER = """
import json, sys
from coldsnap.artifact.oci.publish import publish
store, folder, draft, tag = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
publish(store, folder, json.loads(open(draft).read()), [tag])
print("done", flush=True)
"""


def test_kill_9_anywhere_in_a_publish_leaves_a_usable_store(
    tmp_path: Path, store: Path, capture: Any, draft: Any
) -> None:
    first = tmp_path / "first"
    kept = publish(store, first, draft(capture(first, seed="first")), ["kept"])
    started = time.monotonic()
    killed = finished = 0
    for attempt in range(12):
        folder, description = tmp_path / f"c{attempt}", tmp_path / f"d{attempt}.json"
        description.write_text(json.dumps(draft(capture(folder, seed=f"s{attempt}"))))
        argv = [sys.executable, "-c", PUBLISHER, str(store), str(folder), str(description), "new"]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            child.stdin.write(b"\n")
            child.stdin.flush()
            time.sleep(attempt * 0.004)
            child.send_signal(signal.SIGKILL)
            finished += b"done" in child.stdout.read()
            child.wait()
        killed += 1
        opened = open_store(store)
        assert find(opened, "kept").digest == kept.manifest
        for entry in list_artifacts(opened):
            verify(opened, entry.manifest, "full")
        # What was cut is simply repeated, and a collection takes what is left of it.
        again = publish(store, folder, json.loads(description.read_text()), ["new"])
        collect(opened, 1)
        verify(opened, again.manifest, "full")
        assert list((store / "staging").iterdir()) == []
    assert killed == 12
    assert finished < 12, f"every publish was over before the kill ({time.monotonic() - started})"


def test_a_dead_process_holds_no_lock(store: Path) -> None:
    code = (
        "import sys, os\n"
        "from coldsnap.artifact.oci.layout import create_store\n"
        "with create_store(sys.argv[1]).alone():\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    argv = [sys.executable, "-c", code, str(store)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert collect(open_store(store)).blobs == 0


def test_waiting_for_a_busy_store_ends(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = sys.modules["coldsnap.artifact.oci.layout"]
    monkeypatch.setattr(layout, "LOCK_SECONDS", 0.1)
    opened = create_store(store)
    with opened.shared():
        with opened.shared():  # readers do not wait for each other
            pass
        assert code_of(collect, opened) == "store.busy"
