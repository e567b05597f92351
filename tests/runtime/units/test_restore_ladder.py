"""The ladder mmap, ext, plain, with a real CRIU: what goes down a rung, and what ends at once."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit_workplace import Workplace, counter

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.process_bench.leaks import count
from coldsnap_runtime.restore_rungs import gives_huge_pages, goes_down
from coldsnap_runtime.timing import Timing
from coldsnap_runtime.unit_capture import Capture
from coldsnap_runtime.unit_processes import proc_of, processes
from coldsnap_runtime.unit_requests import RestoreRequest
from coldsnap_runtime.unit_restore import Restored, restore_by_ladder

pytestmark = pytest.mark.criu

BIG = """
import hashlib, os, subprocess, sys
big = bytearray(os.urandom(48 << 20))
if sys.argv[1:] == ["child"]:
    import signal
    signal.pause()
child = subprocess.Popen([sys.executable, "-S", __file__, "child"])
extra = lambda: {"big": hashlib.sha256(big).hexdigest(), "child": child.poll()}
"""
DIGEST = "sha256:" + "0" * 64
_AREA = re.compile(r"^Size: +(\d+) kB$.*?^VmFlags:([^\n]*)$", re.MULTILINE | re.DOTALL)
"""Of smaps."""


@pytest.fixture
def first(workplace: Workplace) -> Any:
    text = BIG + counter().replace('"names": len(', '**extra(), "names": len(')
    return workplace.serve(workplace.script("big.py", text))


@pytest.fixture
def image(workplace: Workplace, first: Any) -> Path:
    """A capture whose rungs are proven; the unit serves on."""
    return Path(workplace.checkpoint(first)["capture_dir"])


def climb(workplace: Workplace, image: Path, **changes: Any) -> Restored:
    request = RestoreRequest("u0", "r", image, DIGEST, **changes)
    return restore_by_ladder(request, workplace.context, workplace.installation, Timing())


def answers_as(workplace: Workplace, first: Any, done: Restored) -> None:
    before, after = workplace.ask(first), workplace.ask(done.record)
    kept = {"big", "child", "sha", "names", "pid"}
    assert {k: v for k, v in after.items() if k in kept} == {
        k: v for k, v in before.items() if k in kept
    }


def left(done: Restored) -> list[str]:
    return [item["code"] for item in done.process_image["left"]]


def writable(path: Path) -> Path:
    """A private copy in its place: the capture's files may be linked elsewhere."""
    copy = path.with_name(path.name + ".copy")
    shutil.copyfile(path, copy)
    copy.chmod(0o600)
    copy.replace(path)
    return path


def flip(path: Path, at: int) -> None:
    with writable(path).open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0x40]))


def cut(path: Path, size: int) -> None:
    os.truncate(writable(path), size)


def test_a_capture_proves_its_rungs_and_a_restore_takes_the_fastest(
    workplace: Workplace, first: Any, image: Path
) -> None:
    verdicts = Capture.read(image).process_image["rungs"]  # type: ignore[index]
    assert verdicts["ext"]["proven"] is True, verdicts
    assert verdicts["ext"]["level"] == "pages"
    assert verdicts["ext"]["pages"] > 2 * (40 << 20) // 4096
    assert verdicts["ext"]["differences"] == 0
    assert 100 < verdicts["ext"]["kept_pages"] < 10_000
    assert verdicts["ext"]["kept_differing"] < 50
    assert "without memory_guard" in verdicts["mmap"]["reason"]
    assert [path.name for path in image.parent.iterdir()] == ["c1"], "no canary stays"
    assert [r.generation for r in workplace.store.generations("u0")] == [1]

    done = climb(workplace, image)
    report = done.process_image
    assert (report["rung"], report["left"]) == ("ext", [])
    assert report["bytes"] == verdicts["ext"]["bytes"]
    assert report["threads"] >= 1
    assert report["gib_per_second"] > 0
    assert "pages_checked" not in report, "it was proven before"
    answers_as(workplace, first, done)


def test_plain_is_plain(workplace: Workplace, first: Any, image: Path) -> None:
    done = climb(workplace, image, image_mode="plain")
    assert done.process_image == {"rung": "plain", "left": []}
    answers_as(workplace, first, done)


def asked_for_huge_pages(done: Restored) -> int:
    """KiB of the unit's memory with MADV_HUGEPAGE."""
    assert done.record.init is not None
    inside = proc_of(done.record.init.pid)
    total = 0
    for process in processes(done.record.init.pid, done.record.root_pid):
        text = (inside / str(process.pid) / "smaps").read_text()
        areas = re.findall(
            r"^Size: +(\d+) kB$.*?^VmFlags:([^\n]*)$", text, re.MULTILINE | re.DOTALL
        )
        total += sum(int(size) for size, flags in areas if "hg" in flags.split())
    return total


@pytest.mark.parametrize("wanted", [True, False])
def test_dense_memory_comes_in_huge_pages(
    workplace: Workplace, first: Any, image: Path, *, wanted: bool
) -> None:
    if not gives_huge_pages():
        pytest.skip("this machine's kernel gives no huge pages to those who ask")
    verdict = Capture.read(image).process_image["rungs"]["ext"]  # type: ignore[index]
    assert verdict["bytes_huge"] > 40 << 20, "an array of 48 MiB, or two"
    done = climb(workplace, image, image_mode="ext", huge_pages=wanted, compare_pages=True)
    assert (done.process_image["rung"], done.process_image["left"]) == ("ext", [])
    asked = asked_for_huge_pages(done)
    assert asked << 10 >= verdict["bytes_huge"] if wanted else asked == 0
    answers_as(workplace, first, done)


def test_mmap_without_a_guard_falls_to_ext(workplace: Workplace, first: Any, image: Path) -> None:
    request, timing = RestoreRequest("u0", "r", image, DIGEST, image_mode="mmap"), Timing()
    done = restore_by_ladder(request, workplace.context, workplace.installation, timing)
    spans = {
        span["attributes"]["rung"]: span["attributes"]
        for span in timing.to_json()["spans"]
        if span["name"] == "ladder"
    }
    assert "without memory_guard" in spans["mmap"]["reason"]
    assert "reason" not in spans["ext"]
    assert any("pages came by ext" in event["message"] for event in workplace.events)
    assert (done.process_image["rung"], left(done)) == ("ext", ["mmap.no-guard"])
    answers_as(workplace, first, done)


def test_an_unproven_rung_is_proven_at_the_restore(
    workplace: Workplace, first: Any, image: Path
) -> None:
    path = writable(image / "capture.json")
    path.write_text(path.read_text().replace('"proven":true', '"proven":false'))
    done = climb(workplace, image)
    assert done.process_image["rung"] == "ext"
    assert done.process_image["pages_checked"] > 2 * (40 << 20) // 4096
    answers_as(workplace, first, done)


def test_a_rung_whose_canary_differed_is_never_taken(workplace: Workplace, image: Path) -> None:
    path = writable(image / "capture.json")
    path.write_text(path.read_text().replace('"differences":0', '"differences":3'))
    done = climb(workplace, image)
    assert (done.process_image["rung"], left(done)) == ("plain", ["ext.differs"])


def biggest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern), key=lambda path: path.stat().st_size)


OVERLAY: dict[str, tuple[Callable[[Path], None], str]] = {
    "index-corrupt": (lambda ext: flip(ext / "fill.index", 300), "fill."),
    "index-cut": (lambda ext: cut(ext / "fill.index", 100), "fill.index-invalid"),
    "index-gone": (lambda ext: (ext / "fill.index").unlink(), "ext.absent"),
    "index-digest": (lambda ext: flip(ext / "fill.index", 40), "fill.index-invalid"),
    "pagemap-cut": (lambda ext: cut(biggest(ext, "pagemap-*"), 20), "criu.restore-failed"),
    "pagemap-garbage": (
        lambda ext: writable(biggest(ext, "pagemap-*")).write_bytes(b"\xff" * 500),
        "criu.restore-failed",
    ),
    "pagemap-gone": (lambda ext: biggest(ext, "pagemap-*").unlink(), ""),
    "pages-gone": (lambda ext: biggest(ext, "pages-*").unlink(), ""),
    "pages-cut": (lambda ext: cut(biggest(ext, "pages-*"), 4096), ""),
    "folder-gone": (shutil.rmtree, "ext.absent"),
}


@pytest.mark.parametrize("name", sorted(OVERLAY))
def test_a_damaged_overlay_falls_to_plain(
    workplace: Workplace, first: Any, image: Path, name: str
) -> None:
    damage, code = OVERLAY[name]
    damage(image / "ext")
    before = count(workplace.state_dir)
    done = climb(workplace, image, deadline=20.0)
    assert done.process_image["rung"] == "plain"
    assert len(left(done)) == 1
    assert left(done)[0].startswith(code)
    answers_as(workplace, first, done)
    workplace.stop(done.record)
    after = count(workplace.state_dir)
    assert {k: after[k] for k in _KINDS} == {k: before[k] for k in _KINDS}


_KINDS = ("mounts", "namespaces", "processes", "descriptors")


ORIGINALS: dict[str, Callable[[Path], None]] = {
    "cut": lambda pages: cut(pages, pages.stat().st_size - (1 << 20)),
    "gone": lambda pages: pages.unlink(),
    "corrupt": lambda pages: flip(pages, pages.stat().st_size // 2),
    "replaced": lambda pages: writable(pages).write_bytes(os.urandom(pages.stat().st_size)),
}


@pytest.mark.parametrize("name", sorted(ORIGINALS))
def test_damaged_originals_end_at_once_and_the_old_instance_serves(
    workplace: Workplace, first: Any, image: Path, name: str
) -> None:
    before = count(workplace.state_dir)
    ORIGINALS[name](biggest(image / "images", "pages-*"))
    with pytest.raises(ColdSnapError) as caught:
        climb(workplace, image, verify="digest", deadline=20.0)
    assert caught.value.code == "image.damaged", caught.value.details
    assert [r.generation for r in workplace.store.generations("u0")] == [1]
    assert workplace.answers(first)
    after = count(workplace.state_dir)
    assert {k: after[k] for k in _KINDS} == {k: before[k] for k in _KINDS}


def test_a_digest_that_differs_has_the_originals_hashed(
    workplace: Workplace, first: Any, image: Path
) -> None:
    """Good originals and a bad digest are the index's fault: the next rung is good."""
    calls: list[str] = []
    fail = filler(workplace, 'if [ "$1" = fill ]; then echo \'{"error":"x"}\'; exit 3; fi')
    changed = replace(workplace.installation, portmap=fail)
    request = RestoreRequest("u0", "r", image, DIGEST, check_pages=lambda: calls.append("hashed"))
    done = restore_by_ladder(request, workplace.context, changed, Timing())
    assert (done.process_image["rung"], left(done)) == ("plain", ["fill.digest-differs"])
    assert calls == ["hashed"]
    answers_as(workplace, first, done)


def filler(workplace: Workplace, text: str) -> Path:
    """A folder whose coldsnap-fill does `text` before it is the real one; its port map's path."""
    real = workplace.installation.portmap.parent / "coldsnap-fill"
    folder = workplace.state_dir.parent / "programs"
    folder.mkdir()
    (folder / "coldsnap-fill").write_text(f'#!/bin/bash\n{text}\nexec {real} "$@"\n')
    (folder / "coldsnap-fill").chmod(0o755)
    shutil.copyfile(workplace.installation.portmap, folder / "coldsnap-portmap")
    (folder / "coldsnap-portmap").chmod(0o755)
    return folder / "coldsnap-portmap"


TARGET = r"""pid=$(printf '%s\n' "$@" | sed -n 's/^1002=//p')"""
FILLERS = {
    "killed": ("[ $1 = fill ] && kill -9 $$", "fill.killed"),
    "killed-midway": ("[ $1 = fill ] && (sleep 0.02; kill -9 $$) &", "fill.killed"),
    "slow": ("[ $1 = fill ] && exec sleep 100", "fill.deadline"),
    "out-of-time": ("[ $1 = fill ] && exit 5", "fill.deadline"),
    "fails": ("[ $1 = fill ] && exit 1", "fill.failed"),
    "other-maps": ("[ $1 = fill ] && exit 4", "fill.target-differs"),
    "target-killed": (f"[ $1 = fill ] && {{ {TARGET}; kill -9 $pid; sleep 0.1; }}", "fill."),
    "target-killed-midway": (
        f"[ $1 = fill ] && {{ {TARGET}; (sleep 0.02; kill -9 $pid) & }}",
        "",
    ),
}


@pytest.mark.parametrize("name", sorted(FILLERS))
def test_a_filler_that_fails_falls_to_plain(
    workplace: Workplace, first: Any, image: Path, name: str
) -> None:
    text, code = FILLERS[name]
    before = count(workplace.state_dir)
    changed = replace(workplace.installation, portmap=filler(workplace, text))
    request = RestoreRequest("u0", "r", image, DIGEST, deadline=16.0, verify="digest")
    done = restore_by_ladder(request, workplace.context, changed, Timing())
    assert done.process_image["rung"] == "plain"
    assert len(left(done)) == 1
    assert left(done)[0].startswith(code), done.process_image
    answers_as(workplace, first, done)
    workplace.stop(done.record)
    after = count(workplace.state_dir)
    assert {k: after[k] for k in _KINDS} == {k: before[k] for k in _KINDS}


def test_a_capture_without_a_filler_is_a_capture(workplace: Workplace, first: Any) -> None:
    folder = workplace.state_dir.parent / "bare"
    folder.mkdir()
    shutil.copy(workplace.installation.portmap, folder / "coldsnap-portmap")
    workplace.installation = replace(workplace.installation, portmap=folder / "coldsnap-portmap")
    image = Path(workplace.checkpoint(first)["capture_dir"])
    verdict = Capture.read(image).process_image["rungs"]["ext"]  # type: ignore[index]
    assert verdict["proven"] is False
    assert verdict["reason"]
    assert not (image / "ext").exists()
    done = climb(workplace, image)
    assert (done.process_image["rung"], left(done)) == ("plain", ["ext.absent"])
    answers_as(workplace, first, done)


def test_a_canary_that_differs_is_told(workplace: Workplace, first: Any) -> None:
    text = 'if [ "$1" = verify ]; then echo \'{"error":"x","differences":7}\'; exit 7; fi'
    workplace.installation = replace(workplace.installation, portmap=filler(workplace, text))
    image = Path(workplace.checkpoint(first)["capture_dir"])
    verdict = Capture.read(image).process_image["rungs"]["ext"]  # type: ignore[index]
    assert (verdict["proven"], verdict["differences"]) == (False, 7)
    done = climb(workplace, image)
    assert (done.process_image["rung"], left(done)) == ("plain", ["ext.differs"])


@pytest.mark.parametrize(
    ("code", "rung", "expected"),
    [
        ("fill.killed", "ext", True),
        ("criu.restore-failed", "ext", True),
        ("criu.timeout", "mmap", True),
        ("image.overlay-damaged", "ext", True),
        ("unit.start-failed", "mmap", True),
        ("unit.start-failed", "ext", False),
        ("image.damaged", "ext", False),
        ("gpu.no-room", "ext", False),
        ("cuda.process-died", "ext", False),
        ("file.disk-full", "mmap", False),
        ("store.blob-differs", "ext", False),
        ("criu.restore-failed", "plain", False),
    ],
)
def test_which_errors_go_down(code: str, rung: str, *, expected: bool) -> None:
    assert goes_down(ColdSnapError(code, "x"), rung) is expected
