"""File mappings become memory of the process's own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

PRELUDE = """
import ctypes, json, mmap, os, threading, time
path = os.environ["DATA"]
own = ctypes.CDLL(None, use_errno=True)
def status():
    buffer = ctypes.create_string_buffer(65536)
    own.coldsnap_mmap_status(buffer, 65536)
    return json.loads(buffer.value)
def is_mapped(): return any(os.path.basename(path) in line for line in open("/proc/self/maps"))
def read_only():
    with open(path, "rb") as file: return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
"""


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "weights.bin"
    path.write_bytes(os.urandom(3 << 20) + b"end")
    return path


@pytest.fixture
def process(run, programs, data):
    def call(code: str, **more: object):
        return run(PRELUDE + code, programs / "libcoldsnap_mmap.so", DATA=data, **more)

    return call


def test_without_patterns_files_are_mapped(process) -> None:
    assert process("m = read_only(); print(json.dumps([is_mapped(), status()['copies']]))") == [
        True, 0,
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["MAP_PRIVATE", "MAP_SHARED"])
def test_files_that_fit_are_copied(process, data, how) -> None:
    """Private ones and shared ones that cannot be written; the file may go."""
    code = f"""
with open(path, "rb") as file:
    m = mmap.mmap(file.fileno(), 0, flags=mmap.{how}, prot=mmap.PROT_READ)
before = is_mapped(); size = os.path.getsize(path); want = open(path, "rb").read()
os.truncate(path, 0); os.unlink(path)
print(json.dumps([before, m[:] == want, status()]))
"""
    is_mapped, is_equal, status = process(
        code, COLDSNAP_MMAP_COPY=f"/nowhere/*:{data.parent}/*.bin"
    )
    assert not is_mapped
    assert is_equal
    assert status["copies"] == 1
    assert status["bytes"] == (3 << 20) + 4096
    assert status["left"] == []


def test_parts_places_and_protections(process, data) -> None:
    """Offsets, the zeros behind the end, a fixed place, no write, and write to a private copy."""
    code = """
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
want = open(path, "rb").read()
fd = os.open(path, os.O_RDONLY)
tail = libc.mmap(None, 8192, 1, 2, fd, 3 << 20)
hole = libc.mmap(None, 1 << 20, 0, 0x22, -1, 0)
fixed = libc.mmap(hole + 65536, 8192, 3, 2 | 0x10, fd, 4096)
ctypes.memset(fixed, 0x41, 10)
bad = libc.mmap(None, 4096, 1, 2, fd, 100)
lines = [l.split() for l in open("/proc/self/maps")]
kept = [l[1] for l in lines if int(l[0].split("-")[0], 16) <= tail < int(l[0].split("-")[1], 16)]
occupied = libc.mmap(hole, 4096, 1, 2 | 0x100000, fd, 0)
print(json.dumps([ctypes.string_at(tail, 8192) == want[3 << 20:] + bytes(8189),
    fixed - hole, ctypes.string_at(fixed + 10, 8182) == want[4106:12288], bad == 2**64 - 1, kept,
    occupied == 2**64 - 1, open(path, "rb").read() == want, is_mapped(), status()["copies"]]))
"""
    found = process(code, COLDSNAP_MMAP_COPY=data)
    assert found == [True, 65536, True, True, ["r--p"], True, True, False, 2]


def test_what_is_shared_and_written_stays(process, data) -> None:
    code = """
with open(path, "r+b") as file: m = mmap.mmap(file.fileno(), 0)
m[0:3] = b"abc"; m.flush()
print(json.dumps([is_mapped(), open(path, "rb").read(3).decode(), status()["left"],
    status()["copies"], own.coldsnap_mmap_detach(None), is_mapped()]))
"""
    mapped, written, left, copies, detached, still = process(code, COLDSNAP_MMAP_COPY=data)
    assert mapped
    assert written == "abc"
    assert left == [{"path": str(data), "reason": "shared, and can be written"}]
    assert (copies, detached, still) == (0, 0, True)


def test_no_more_than_the_limit(process, data) -> None:
    code = """
maps = [read_only() for _ in range(3)]
print(json.dumps([status()["copies"], status()["bytes"], status()["left"], is_mapped(),
    all(m[-3:] == b"end" for m in maps)]))
"""
    copies, size, left, mapped, good = process(
        code, COLDSNAP_MMAP_COPY=data, COLDSNAP_MMAP_LIMIT=7 << 20
    )
    assert copies == 2
    assert size == 2 * ((3 << 20) + 4096)
    assert left[0]["reason"] == "more than COLDSNAP_MMAP_LIMIT"
    assert mapped
    assert good


def test_what_is_mapped_already_is_detached(process, data) -> None:
    """Deleted files too; bytes, private changes, protections and addresses stay."""
    code = """
want = open(path, "rb").read()
one = read_only()
with open(path, "rb") as file:
    private = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=3)
private[5:8] = b"own"
address = ctypes.addressof(ctypes.c_char.from_buffer(private))
before = is_mapped()
os.unlink(path)
counts = [own.coldsnap_mmap_detach(b"deleted"), own.coldsnap_mmap_detach(b"deleted")]
now = ctypes.string_at(address, len(want))
print(json.dumps([before, counts, is_mapped(), one[:] == want, now == want[:5] + b"own" + want[8:],
    status()["copies"]]))
"""
    assert process(code) == [True, [2, 0], False, True, True, 2]


def test_detaching_under_readers(process, data) -> None:
    """Threads that read all the time see the same bytes before, after and between."""
    code = """
m = read_only(); want = m[1 << 20: (1 << 20) + 65536]; ends, wrong = [], []
def read():
    while not ends:
        if m[1 << 20: (1 << 20) + 65536] != want: wrong.append(1)
threads = [threading.Thread(target=read) for _ in range(3)]; [t.start() for t in threads]
time.sleep(0.05); count = own.coldsnap_mmap_detach(path.encode()); time.sleep(0.05)
ends.append(1); [t.join() for t in threads]
print(json.dumps([count, wrong, is_mapped()]))
"""
    assert process(code) == [1, [], False]


def test_a_file_that_was_cut_is_copied_as_far_as_it_goes(process, data) -> None:
    code = """
m = read_only(); head = m[:4096]; os.truncate(path, 5000)
count = own.coldsnap_mmap_detach(path.encode())
print(json.dumps([count, m[:4096] == head, m[8192:12288] == bytes(4096), is_mapped()]))
"""
    assert process(code) == [1, True, True, False]


def test_from_python_as_an_engine_would(run, programs, data) -> None:
    root = Path(__file__).parents[3]
    code = f"""
import json, mmap, os, sys
sys.path[:0] = [{str(root)!r}, {str(root / "runtime")!r}]
from coldsnap_runtime.preloads import file_mappings
file = open(os.environ["DATA"], "rb")
m = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
found = file_mappings()
print(json.dumps([found.detach([os.environ["DATA"]]), found.status()["copies"], m[-3:].decode()]))
"""
    assert run(code, programs / "libcoldsnap_mmap.so", DATA=data) == [1, 1, "end"]
    gone = code.split("found =", maxsplit=1)[0] + "print(json.dumps(file_mappings() is None))"
    assert run(gone, DATA=data) is True


def test_as_a_worker_of_vllm_does_it(run, programs, data) -> None:
    """Files that are deleted after they were mapped, found when the engine is held still."""
    root = Path(__file__).parents[3]
    code = f"""
import json, mmap, os, sys
sys.path[:0] = [{str(root)!r}, {str(root / "runtime")!r}]
from coldsnap_inside_vllm.trimming import detach_mappings, trim_process
with open(os.environ["DATA"], "rb") as file:
    m = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
os.unlink(os.environ["DATA"])
trim_process()
with open("/proc/self/maps") as maps: left = os.environ["DATA"] in maps.read()
print(json.dumps([left, m[-3:].decode(), detach_mappings()]))
"""
    shim = programs / "libcoldsnap_mmap.so"
    assert run(code, shim, DATA=data, COLDSNAP_MMAP_COPY="deleted") == [False, "end", 0]
    data.write_bytes(b"end")
    assert run(code, DATA=data) == [True, "end", 0]


def test_the_parts_under_sanitizers(tmp_path) -> None:
    """Damaged maps of GPUs, patterns, and detaching in many turns."""
    root = Path(__file__).parents[3] / "native" / "shims"
    program = tmp_path / "parts"
    names = ("map.c", "devices.c", "rules.c", "detach.c")
    subprocess.run(
        [
            "cc", "-std=gnu11", "-g", "-O1", "-fsanitize=address,undefined",
            "-fno-sanitize-recover=all", "-D_GNU_SOURCE", f"-I{root}/src", f"-I{root}/include",
            *(str(root / "src" / name) for name in names), str(root / "tests" / "parts.c"),
            "-o", str(program), "-pthread",
        ],
        check=True,
    )  # fmt: skip
    done = subprocess.run(
        [str(program), str(tmp_path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("parts ")
