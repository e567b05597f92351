"""A process tree with all kinds of memory, its capture, and restores of it by each rung.

The tree: a server with threads, numbers in a brk heap, mmap areas of all sizes, shared memory,
and a child started by exec with the same; on demand a forked child that shares pages with it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unit_workplace import DIGEST, Workplace

from coldsnap_runtime.host_pids import host_pids
from coldsnap_runtime.process_image import Mode, Rewritten, rewrite
from coldsnap_runtime.process_image.fill_index import FillIndex, read_fill_index
from coldsnap_runtime.process_image.page_map import Run, within
from coldsnap_runtime.process_image.process_image import Process, read_process_image
from coldsnap_runtime.restore_attempt import Attempt, Subject
from coldsnap_runtime.timing import Timing
from coldsnap_runtime.unit_capture import Capture
from coldsnap_runtime.unit_placement import placed
from coldsnap_runtime.unit_record import ProcessRef, UnitRecord
from coldsnap_runtime.unit_requests import LaunchSpec, RestoreRequest

PAGE = 4096

TREE = """
import hashlib, http.server, json, mmap, os, random, subprocess, sys, threading

role, with_fork = sys.argv[1], sys.argv[2] == "fork"
mega = 1 << 20
make = random.Random(role).randbytes
blobs = [make(3 * mega + i * 4096) for i in range(8)]
small = [make(5000) for _ in range(3000)]
names = {str(i): (i, str(i * 7)) for i in range(60000)}
holes = mmap.mmap(-1, 16 * mega, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for i in range(0, 16 * mega, 96 * 4096):
    holes[i:i + 33 * 4096] = make(33 * 4096)  # pages, then a hole, again and again
shared = mmap.mmap(-1, 4 * mega)
shared[:mega] = make(mega)
ready = threading.Event()

def worker():
    own = [make(2000 + j) for j in range(300)]
    ready.wait()

for _ in range(4):
    threading.Thread(target=worker, daemon=True).start()

def digest():
    h = hashlib.sha256()
    for b in blobs + small:
        h.update(b)
    h.update(repr(sorted(names.items())).encode())
    h.update(holes[:])
    h.update(shared[:])
    return h.hexdigest()

if role == "child":
    for line in sys.stdin:
        print(digest(), flush=True)
    sys.exit()

argv = [sys.executable, "-S", __file__, "child", "-"]
child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
answer_r, answer_w = os.pipe()
ask_r, ask_w = os.pipe()
if with_fork and os.fork() == 0:
    while os.read(ask_r, 1):
        os.write(answer_w, digest().encode())
    os._exit(0)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        child.stdin.write("x\\n")
        child.stdin.flush()
        answer = {"own": digest(), "child": child.stdout.readline().strip()}
        if with_fork:
            os.write(ask_w, b"x")
            answer["forked"] = os.read(answer_r, 64).decode()
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""


@dataclass(frozen=True)
class Captured:
    folder: Path
    answer: Any
    """Of the tree, before and after the dump."""

    @property
    def images(self) -> Path:
        return self.folder / "images"


def capture_tree(place: Workplace, *, with_fork: bool) -> Captured:
    """Launch the tree, capture it by the product, and end it."""
    script = place.script("tree.py", TREE)
    argv = [shutil.which("python3") or "python3", "-S", str(script), "parent"]
    record = place.serve(script, argv=[*argv, "fork" if with_fork else "-"])
    try:
        answer = place.ask(record)
        result = place.checkpoint(record)
        assert place.ask(record) == answer
        return Captured(Path(result["capture_dir"]), answer)
    finally:
        place.stop(record)


@dataclass
class Compared:
    """What a look at every dumped page of a restored tree found, before it ran on."""

    pages: int = 0
    differing: list[int] = field(default_factory=list)
    """Addresses outside of moved memory: stacks and thread blocks, which the kernel writes to."""
    differing_moved: list[int] = field(default_factory=list)
    hole_bytes: int = 0
    holes_not_zero: list[int] = field(default_factory=list)
    shared_bytes: int = 0
    """Anonymous memory of all processes that another one shares."""


@contextmanager
def restored_by(
    place: Workplace, captured: Captured, mode: str, program: Path | None = None
) -> Iterator[tuple[UnitRecord, Compared]]:
    """Restore by the overlay `mode` of the capture, and compare while all stand still.

    Args:
        place: where.
        captured: what.
        mode: ``ext`` or ``mmap``.
        program: coldsnap-fill; None: a few lines of Python fill instead. The comparison here is
            by Python in any case, and the program's own must agree.
    """
    index = read_fill_index((captured.folder / mode / "fill.index").read_bytes())
    found = Compared()

    def at_rest(init: ProcessRef) -> None:
        if mode == "ext" and program is None:
            fill(index, captured.images, init)
        elif mode == "ext" and program is not None:
            run_fill(program, "fill", captured, mode, index, init)
        compare(captured.images, index, init, found)
        if program is not None:
            run_fill(program, "verify", captured, mode, index, init)

    request = RestoreRequest("u0", "r", captured.folder, DIGEST)
    capture = Capture.read(captured.folder)
    subject = Subject(request, capture, placed(LaunchSpec.from_json(capture.launch), request))
    attempt = Attempt(subject, place.context, place.installation, Timing(), mode, at_rest)
    record = attempt.run(60.0)
    try:
        yield record, found
    finally:
        place.stop(record)


def overlay(captured: Captured, mode: Mode, fill_program: Path) -> Rewritten:
    """Rewrite into the folder of the capture where a restore looks for it."""
    shutil.rmtree(captured.folder / mode, ignore_errors=True)
    return rewrite(captured.images, captured.folder / mode, mode, fill_program)


def fill(index: FillIndex, images: Path, init: ProcessRef) -> None:
    pids = host_pids(init.pid, index.processes)
    for run in index.runs:
        pid = pids[index.processes[run.process]]
        with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
            data = _bytes_at(images / index.files[run.file].name, run.offset, run.bytes)
            assert os.pwrite(memory.fileno(), data, run.address) == run.bytes


def run_fill(
    program: Path, verb: str, captured: Captured, mode: str, index: FillIndex, init: ProcessRef
) -> None:
    argv = [program, verb, "--index", captured.folder / mode / "fill.index"]
    argv += ["--images", captured.images]
    for inside, host in host_pids(init.pid, index.processes).items():
        argv += ["--pid", f"{inside}={host}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["bytes"] == index.total
    assert told["pages"] == index.total // PAGE


def compare(images: Path, index: FillIndex, init: ProcessRef, found: Compared) -> None:
    image = read_process_image(images)
    pids = host_pids(init.pid, [process.pid for process in image.processes])
    found.shared_bytes = sum(_shared_bytes(pid) for pid in pids.values())
    for process in image.processes:
        moved = [
            (area.start, area.end)
            for area in index.areas
            if index.processes[area.process] == process.pid
        ]
        with Path(f"/proc/{pids[process.pid]}/mem").open("rb", buffering=0) as memory:

            def read(start: int, size: int, descriptor: int = memory.fileno()) -> bytes:
                return os.pread(descriptor, size, start)

            _compare_pages(images, process, moved, read, found)
            _compare_holes(process, moved, read, found)


def _shared_bytes(pid: int) -> int:
    kib, is_anonymous = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):  # a new area: no file, private
            is_anonymous = words[4] == "0" and words[1].endswith("p")
        elif is_anonymous and words[0] in ("Shared_Clean:", "Shared_Dirty:"):
            kib += int(words[1])
    return kib << 10


Read = Callable[[int, int], bytes]


def _compare_pages(
    images: Path, process: Process, moved: list[tuple[int, int]], read: Read, found: Compared
) -> None:
    for run in process.pages.runs:
        expected = _bytes_at(images / process.pages.pages_name, run.offset, run.bytes)
        seen = read(run.start, run.bytes)
        found.pages += run.bytes // PAGE
        for at in range(0, run.bytes, PAGE) if seen != expected else ():
            if seen[at : at + PAGE] != expected[at : at + PAGE]:
                address = run.start + at
                is_moved = any(start <= address < end for start, end in moved)
                (found.differing_moved if is_moved else found.differing).append(address)


def _compare_holes(
    process: Process, moved: list[tuple[int, int]], read: Read, found: Compared
) -> None:
    """What was not dumped of the areas from which something was moved."""
    for area in process.areas:
        if not any(area.start <= start < area.end for start, _ in moved):
            continue
        at = area.start
        for run in [*within(process.pages.runs, area), Run(area.end, area.end, 0, 0)]:
            if run.start > at:
                seen = read(at, run.start - at)
                found.hole_bytes += len(seen)
                if len(seen) != run.start - at or any(seen):
                    found.holes_not_zero.append(at)
            at = run.end


def _bytes_at(path: Path, offset: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(size)
    assert len(data) == size
    return data
