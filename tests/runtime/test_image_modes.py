"""image_mode through the verbs: captures prove, restores tell, mapped images are held."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from runtime_target import HYDRATE, Host, call

from coldsnap.artifact.immutable import is_immutable, set_immutable

pytestmark = pytest.mark.criu

READY = call("GET", "/health", retry_seconds=10.0)
THEN = {"hydrate": {"calls": [HYDRATE], "ready": READY}, "accept": {"tokens": 5}}


def capture(host: Host, *, guard: bool = True, prove: bool = True) -> tuple[str, dict[str, Any]]:
    """(artifact, what unit.checkpoint told) of a launched and asked unit."""
    request = host.launch_request()
    request["launch"]["memory_guard"] = guard
    request["launch"]["argv"] += ["0", str(64 << 20)]
    host.unit("launch", **request).ok()
    answers = host.accept().result["answers"]
    host.quiesce().ok()
    more = {"prove": {"then": THEN, "answers": answers}} if prove else {}
    captured = host.checkpoint(**more).result
    captured["answers"] = answers
    return host.publish(captured), captured


def test_a_canary_gives_the_answers(host: Host) -> None:
    artifact, captured = capture(host)
    rungs = captured["process_image"]["rungs"]
    for rung in ("ext", "mmap"):
        assert rungs[rung]["proven"] is True, rungs
        assert rungs[rung]["level"] == "answer", rungs[rung]["reason"]
        assert rungs[rung]["reason"] == ""
    assert host.states() == {1: "serving"}
    names = {span["name"] for span in captured["timing"]["spans"]}
    assert {"process-image", "rewrite", "canary", "canary-answer"} <= names

    done = host.restore(artifact, image_mode="mmap").result
    report = done["process_image"]
    assert (report["rung"], report["left"]) == ("mmap", [])
    assert report["bytes"] == rungs["mmap"]["bytes"]
    host.hydrate(generation=2).ok()
    assert host.accept(expected=captured["answers"], generation=2).result["accepted"] is True

    rungs_of = {number: row["rung"] for number, row in host.generations().items()}
    assert rungs_of == {1: "", 2: "mmap"}, "what a preview refuses a capture by"

    # While it lives nobody can change what it maps, and nobody can dump it.
    pages = sorted(host.state.glob("images/u0/*/images/pages-*.img"))
    assert pages
    if report["immutable"] is True:
        assert all(is_immutable(path) for path in pages)
        with pytest.raises(PermissionError):
            os.truncate(pages[0], 0)
    host.unit("quiesce", generation=2, calls=[], undo=[], hold=30.0).ok()
    refused = host.checkpoint("c2", generation=2, resume=[]).error
    assert refused["code"] == "checkpoint.image-mapped"
    assert "image_mode: ext" in refused["remedy"]

    # A replica links the same file: one page cache, and it stays immutable when one goes.
    host.restore(artifact, image_mode="mmap").ok()
    inodes = {path.stat().st_ino for path in host.state.glob("images/u0/*/images/pages-*.img")}
    assert len(inodes) == len(pages)
    host.unit("stop", generation=2, grace=0).ok()
    left = sorted(host.state.glob("images/u0/*/images/pages-*.img"))
    assert len(left) == len(pages)
    assert report["immutable"] is not True or all(is_immutable(path) for path in left)
    host.unit("stop", generation=3, grace=0).ok()
    assert not list(host.state.glob("images/u0/*"))
    assert not any(is_immutable(path) for path in host.state.glob("store/blobs/sha256/*"))
    assert not list(host.state.glob("store/pins/*.json"))


def test_an_immutable_blob_is_collected(host: Host) -> None:
    artifact, _ = capture(host, prove=False)
    blob = max(host.state.glob("store/blobs/sha256/*"), key=lambda path: path.stat().st_size)
    if reason := set_immutable(blob, immutable=True):
        pytest.skip(f"no immutable files here: {reason}")
    store = str(host.state / "store")
    host.call("store.delete", request={"store": store, "ref": artifact}).ok()
    host.call("store.collect", request={"store": store}).ok()
    assert not blob.exists()


def test_two_replicas_from_one_image_at_once(host: Host) -> None:
    artifact, captured = capture(host)
    then = {"hydrate": THEN["hydrate"]}
    requests = [{"unit": unit, "run": host.run, "then": then} for unit in ("u0", "u1")]

    def restore(request: dict[str, Any]) -> dict[str, Any]:
        more = {"store": str(host.state / "store"), "artifact": artifact, "image_mode": "mmap"}
        return host.call("unit.restore", request={**more, **request}, timeout=90).result

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(restore, requests))
    try:
        assert [item["process_image"]["rung"] for item in done] == ["mmap", "mmap"]
        for unit, item in zip(("u0", "u1"), done, strict=True):
            asked = {"prompts": ["one", "two"], "tokens": 5, "expected": captured["answers"]}
            where = {"unit": unit, "run": host.run, "generation": item["generation"]}
            answer = host.call("unit.accept", request={**asked, **where}).result
            assert answer["accepted"] is True
    finally:
        stop = {"unit": "u1", "run": host.run, "generation": 1, "grace": 0}
        host.call("unit.stop", request=stop).ok()


@pytest.mark.parametrize("mode", ["auto", "ext", "plain"])
def test_damaged_pages_by_digest(host: Host, mode: str) -> None:
    """Bytes that changed below an unchanged stat, as a disk does it: a digest sees them."""
    artifact, _ = capture(host, prove=False)
    blob = pages_blob(host)
    flip_silently(blob)
    error = host.restore(artifact, image_mode=mode, verify="digest").error
    assert error["code"] == "store.blob-differs", error
    assert "images/pages-" in error["message"]
    assert host.states() == {1: "serving"}
    assert not list(host.state.glob("images/u0/*"))


def pages_blob(host: Host) -> Path:
    found = [
        path for path in host.state.glob("store/blobs/sha256/*") if path.stat().st_size > (32 << 20)
    ]
    return max(found, key=lambda path: path.stat().st_size)


def flip_silently(path: Path) -> None:
    status = path.stat()
    with path.open("r+b", buffering=0) as file:
        file.seek(status.st_size // 2)
        byte = file.read(1)
        file.seek(status.st_size // 2)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
