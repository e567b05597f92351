"""coldsnap-fill from the outside: real processes are filled and compared."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import time
from pathlib import Path

import pytest
from conftest import Scene
from fill_index import CHUNK, MAPPED, PAGE, Parked, call


def total(scene: Scene) -> int:
    return sum(run[3] for run in scene.index.runs)


@pytest.mark.parametrize("options", [(), ("--threads", 1), ("--threads", 8), ("--no-digests",)])
def test_targets_hold_what_the_images_hold(scene: Scene, options: tuple[object, ...]) -> None:
    assert scene.seal().status == 0
    filled = scene.call("fill", *options)
    assert filled.status == 0
    for process in (0, 1):
        assert scene.seen(process) == scene.wanted(process)
    assert filled.said["bytes"] == total(scene)
    assert filled.said["pages"] == total(scene) // PAGE
    assert filled.said["digests"] is ("--no-digests" not in options)
    shares = [
        {"pid": t.pid, "bytes": sum(run[3] for run in scene.index.runs if run[0] == process)}
        for process, t in enumerate(scene.targets)
    ]
    assert filled.said["processes"] == shares
    verified = scene.call("verify")
    assert (verified.status, verified.said["differences"]) == (0, 0)
    assert verified.said["pages"] == total(scene) // PAGE


def test_sealing_is_repeatable_and_keeps_the_mode(scene: Scene) -> None:
    scene.write()
    scene.path.chmod(0o400)
    assert scene.call("seal", "--threads", 1).status == 0
    once = scene.path.read_bytes()
    assert scene.call("seal").status == 0
    assert scene.path.read_bytes() == once != bytes(scene.index.pack())
    assert scene.path.stat().st_mode & 0o7777 == 0o400
    assert sorted(p.name for p in scene.folder.iterdir()) == [
        "fill.index", "pages-1.img", "pages-2.img"
    ]  # fmt: skip


def test_what_is_not_sealed_is_not_filled(scene: Scene) -> None:
    scene.write()
    answer = scene.call("fill")
    assert (answer.status, answer.said["code"]) == (2, "invalid")
    assert not any(any(memory) for memory in scene.seen(0).values())


@pytest.mark.parametrize("where", ["file", "index"])
def test_a_wrong_digest_stops_it(scene: Scene, where: str) -> None:
    """A flipped bit in an image, or in the digests of an index that was sealed again by hand."""
    assert scene.seal().status == 0
    path = scene.folder / "pages-2.img" if where == "file" else scene.path
    data = bytearray(path.read_bytes())
    data[16 * PAGE + 5 if where == "file" else -40] ^= 4
    path.write_bytes(data)
    answer = scene.call("fill")
    if where == "file":
        assert (answer.status, answer.said["code"]) == (3, "digest")
        assert "pages-2.img" in str(answer.said["error"])
        assert scene.call("fill", "--no-digests").status == 0
        assert scene.call("verify").status == 3
    else:
        assert (answer.status, answer.said["code"]) == (2, "invalid")


def test_verify_counts_what_differs(scene: Scene) -> None:
    assert scene.seal().status == 0
    assert scene.call("fill").status == 0
    run = next(run for run in scene.index.runs if run[0] == 1 and run[3] > CHUNK)
    hole = min(end for p, _, _, end in scene.index.areas if p == 1 and end > run[2]) - PAGE
    for address in (run[2] + CHUNK + PAGE + 7, run[2] + 5, hole):
        byte = scene.targets[1].read(address, 1)
        scene.targets[1].write(address, bytes([byte[0] ^ 1]))
    answer = scene.call("verify")
    assert (answer.status, answer.said["code"]) == (7, "differs")
    assert answer.said["differences"] == 3
    assert (answer.said["process"], answer.said["address"]) == (scene.targets[1].pid, hex(run[2]))


@pytest.mark.parametrize("how", ["cut", "grown", "missing", "link", "folder"])
def test_image_files_that_are_not_what_was_sealed(scene: Scene, how: str) -> None:
    assert scene.seal().status == 0
    path = scene.folder / "pages-2.img"
    if how == "cut":
        os.truncate(path, 20 * PAGE)
    elif how == "grown":
        os.truncate(path, path.stat().st_size + PAGE)
    else:
        path.rename(scene.folder / "elsewhere")
    if how == "link":
        path.symlink_to(scene.folder / "elsewhere")
    if how == "folder":
        path.mkdir()
    answer = scene.call("fill")
    assert (answer.status, answer.said["code"]) == (1, "io")
    assert "pages-2.img" in str(answer.said["error"])
    assert not any(any(memory) for process in (0, 1) for memory in scene.seen(process).values())
    assert scene.call("seal").status == 1


def test_an_image_that_is_unlinked_meanwhile_is_read_to_its_end(scene: Scene) -> None:
    """Another file in its place, of the same size, is another content."""
    assert scene.seal().status == 0
    path = scene.folder / "pages-1.img"
    size = path.stat().st_size
    path.unlink()
    path.write_bytes(os.urandom(size))
    assert scene.call("fill").status == 3


@pytest.mark.parametrize("what", ["protected", "unmapped", "shared", "file", "read-only"])
def test_maps_that_differ_are_refused_before_a_byte_is_written(scene: Scene, what: str) -> None:
    assert scene.seal().status == 0
    start = next(s for p, _, s, e in scene.index.areas if p == 1 and e - s > CHUNK) + CHUNK
    run = scene.targets[1].run
    libc = f"libc.{{}}(ctypes.c_void_p({start}), ctypes.c_size_t(4096), {{}})"
    if what == "protected":
        assert run(libc.format("mprotect", "0")) == "0"
    elif what == "read-only":
        assert run(libc.format("mprotect", "1")) == "0"
    elif what == "unmapped":
        assert run(f"libc.munmap(ctypes.c_void_p({start}), ctypes.c_size_t(4096))") == "0"
    elif what == "shared":
        assert run(f"libc.mmap({start}, 4096, 3, 0x31, -1, 0)") == str(start)
    else:
        path = scene.folder / "pages-1.img"
        expression = f"libc.mmap({start}, 4096, 3, 0x12, os.open({str(path)!r}, 0), 0)"
        assert run(expression) == str(start)
    answer = scene.call("fill")
    assert (answer.status, answer.said["code"]) == (4, "maps")
    assert hex(start) in str(answer.said["error"])
    assert not any(any(memory) for memory in scene.seen(0).values())


def test_another_process_is_refused(scene: Scene) -> None:
    """The numbers inside are checked: here there is no PID namespace, so they must be the same."""
    assert scene.seal().status == 0
    one, two = (target.pid for target in scene.targets)
    answer = call(
        scene.program, "fill", "--index", scene.path, "--images", scene.folder,
        f"--pid={one}={two}", f"--pid={two}={one}",
    )  # fmt: skip
    assert (answer.status, answer.said["code"]) == (4, "maps")
    answer = call(
        scene.program, "fill", "--index", scene.path, "--images", scene.folder, f"--pid={one}={one}"
    )
    assert (answer.status, answer.said["code"]) == (2, "invalid")


def test_a_process_that_ended(scene: Scene) -> None:
    assert scene.seal().status == 0
    scene.targets[1].end()
    answer = scene.call("fill")
    assert (answer.status, answer.said["code"]) == (6, "ended")
    assert not any(any(memory) for memory in scene.seen(0).values())


def test_mapped_areas_are_verified_and_never_filled(scene: Scene) -> None:
    target, path = scene.targets[0], scene.folder / "pages-1.img"
    for process, _, address, size, offset in scene.index.runs:
        if process == 0:
            opened = f"os.open({str(path)!r}, 0)"
            made = target.run(f"libc.mmap({address}, {size}, 3, 0x12, {opened}, {offset})")
            assert made == str(address)
    scene.index.areas = [(p, MAPPED, s, e) for p, _, s, e in scene.index.areas if p == 0]
    scene.index.runs = [run for run in scene.index.runs if run[0] == 0]
    scene.index.processes, scene.targets = [target.pid], [target]
    assert scene.seal().status == 0
    assert scene.call("fill").status == 2
    answer = scene.call("verify")
    assert (answer.status, answer.said["differences"]) == (0, 0)
    end = scene.index.areas[0][3]
    target.write(end - 3, b"x")
    answer = scene.call("verify")
    assert (answer.status, answer.said["address"]) == (7, hex(end - PAGE))


LARGE = 192 << 20


def start_slow(scene: Scene, *more: str) -> subprocess.Popen[str]:
    """A fill of many bytes by one thread."""
    pids = [f"--pid={target.pid}={target.pid}" for target in scene.targets]
    return subprocess.Popen(
        [scene.program, "fill", "--index", scene.path, "--images", scene.folder, *pids,
         "--threads", "1", *more],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.fixture
def large(scene: Scene, park: object) -> Scene:
    """One target with much to fill, from one sparse file."""
    target = Parked([LARGE])
    scene.targets.append(target)
    number = len(scene.index.processes)
    scene.index.processes.append(target.pid)
    scene.index.areas.append((number, 0, target.starts[0], target.starts[0] + LARGE))
    scene.index.runs.append((number, 2, target.starts[0], LARGE, 0))
    scene.index.files.append(("pages-3.img", LARGE))
    with (scene.folder / "pages-3.img").open("wb") as file:
        file.truncate(LARGE)
    assert scene.seal().status == 0
    return scene


def test_a_process_killed_meanwhile_ends_it(large: Scene) -> None:
    filling = start_slow(large)
    time.sleep(0.02)
    os.kill(large.targets[2].pid, signal.SIGKILL)
    said, _ = filling.communicate(timeout=30)
    large.targets[2].end()
    assert (filling.returncode, json.loads(said)["code"]) == (6, "ended")


def test_a_deadline_ends_it(large: Scene) -> None:
    answer = large.call("fill", "--deadline", "0.01", "--threads", 1)
    large.targets[2].end()
    assert (answer.status, answer.said["code"]) == (5, "deadline")


def test_a_file_cut_meanwhile_is_an_error(large: Scene) -> None:
    filling = start_slow(large)
    time.sleep(0.02)
    os.truncate(large.folder / "pages-3.img", PAGE)
    said, _ = filling.communicate(timeout=30)
    large.targets[2].end()
    assert (filling.returncode, json.loads(said)["code"]) == (1, "io")
    assert "pages-3.img" in said


def test_stopped_targets_are_filled_all_the_same(scene: Scene) -> None:
    """As CRIU's are: nobody of them runs."""
    assert scene.seal().status == 0
    for target in scene.targets:
        os.kill(target.pid, signal.SIGSTOP)
    assert scene.call("fill").status == 0
    assert scene.seen(0) == scene.wanted(0)


@pytest.mark.parametrize(
    "arguments",
    [
        (), ("pour",), ("fill",), ("seal", "--index", "x"),
        ("fill", "--index", "x", "--images", "y", "--pid", "1"),
        ("fill", "--index", "x", "--images", "y", "--pid", "0=3"),
        ("fill", "--index", "x", "--images", "y", "--pid", "3=3", "--pid", "3=4"),
        ("fill", "--index", "x", "--images", "y", "--pid", "3=99999999999999999999"),
        ("fill", "--index", "x", "--images", "y", "--deadline", "nan"),
        ("fill", "--index", "x", "--images", "y", "--threads", "-1"),
        ("fill", "--index", "x", "--images", "y", "more"),
        ("seal", "--index", "x", "--images", "y", "--pid", "3=3"),
    ],
)  # fmt: skip
def test_bad_arguments(program: Path, arguments: tuple[str, ...]) -> None:
    answer = call(program, *arguments)
    assert (answer.status, answer.said["code"]) == (2, "invalid")


def test_an_index_that_is_not_there(program: Path, tmp_path: Path) -> None:
    answer = call(program, "seal", "--index", tmp_path / 'a "b"', "--images", tmp_path)
    assert (answer.status, answer.said["code"]) == (1, "io")
    assert 'a "b"' in str(answer.said["error"])
    answer = call(program, "seal", "--index", "/dev/zero", "--images", tmp_path)
    assert answer.status == 2


HEADER = struct.Struct("<8s8IQ")


def put(data: bytearray, at: int, form: str, value: int) -> None:
    struct.pack_into(form, data, at, value)


def places(scene: Scene) -> dict[str, int]:
    """Where the tables begin."""
    files = HEADER.size
    processes = files + 72 * len(scene.index.files)
    areas = processes + 8 * len(scene.index.processes)
    runs = areas + 24 * len(scene.index.areas)
    return {"file": files, "process": processes, "area": areas, "run": runs}


HOSTILE = {
    "counts": ("", 8, "<I", 0xFFFFFFFF),
    "runs": ("", 20, "<I", 0xFFFFFFFF),
    "chunks": ("", 24, "<I", 0xFFFFFFFF),
    "chunk-bytes-0": ("", 28, "<I", 0),
    "chunk-bytes-odd": ("", 28, "<I", (1 << 20) + 4096),
    "chunk-bytes-large": ("", 28, "<I", 1 << 31),
    "digest-kind": ("", 32, "<I", 2),
    "reserved": ("", 36, "<I", 1),
    "total": ("", 40, "<Q", 1 << 63),
    "file-size": ("file", 0, "<Q", 1 << 63),
    "file-slash": ("file", 9, "<B", ord("/")),
    "file-dots": ("file", 8, "<H", 0x2E2E),
    "file-empty": ("file", 8, "<B", 0),
    "file-control": ("file", 9, "<B", 27),
    "pid-0": ("process", 0, "<I", 0),
    "pid-large": ("process", 0, "<I", 0xFFFFFFFF),
    "area-process": ("area", 0, "<I", 2),
    "area-flags": ("area", 4, "<I", 1 << 31),
    "area-start": ("area", 8, "<Q", 0xFFFFFFFFFFFFF000),
    "area-end": ("area", 16, "<Q", 0xFFFFFFFFFFFFF000),
    "area-odd": ("area", 8, "<Q", 4097),
    "run-process": ("run", 0, "<I", 77),
    "run-file": ("run", 4, "<I", 77),
    "run-address": ("run", 8, "<Q", 4096),
    "run-address-odd": ("run", 8, "<Q", 1),
    "run-bytes-0": ("run", 16, "<Q", 0),
    "run-bytes": ("run", 16, "<Q", 0xFFFFFFFFFFFFF000),
    "run-offset": ("run", 24, "<Q", 0xFFFFFFFFFFFFF000),
    "run-chunk": ("run", 32, "<Q", 1),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_indexes_are_refused(scene: Scene, case: str) -> None:
    table, at, form, value = HOSTILE[case]
    data = scene.index.pack()
    put(data, (places(scene)[table] if table else 0) + at, form, value)
    scene.path.write_bytes(data)
    answer = scene.call("seal")
    assert (answer.status, answer.said["code"]) == (2, "invalid"), answer


def test_tables_out_of_order_or_overlapping_are_refused(scene: Scene) -> None:
    runs, areas = list(scene.index.runs), list(scene.index.areas)
    for changed in (runs[::-1], [runs[0], *runs], [runs[1], runs[0], *runs[2:]]):
        scene.index.runs = changed
        assert scene.seal().status == 2
    scene.index.runs = runs
    for changed in (areas[::-1], [areas[0], *areas], areas[1:], []):
        scene.index.areas = changed
        assert scene.seal().status == 2
    scene.index.areas = areas
    scene.index.processes = [scene.targets[0].pid] * 2
    assert scene.seal().status == 2


def test_every_length_of_an_index_is_refused_but_its_own(scene: Scene) -> None:
    assert scene.seal().status == 0
    data = scene.path.read_bytes()
    for length in (0, 1, 47, 48, 80, len(data) // 2, len(data) - 1):
        scene.path.write_bytes(data[:length])
        assert scene.call("fill").status == 2
    scene.path.write_bytes(data + b"\0")
    assert scene.call("fill").status == 2
