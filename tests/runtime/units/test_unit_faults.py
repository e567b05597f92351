"""What goes wrong while a unit is dumped or restored: one clear error, and the engine serves on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from unit_workplace import Workplace, counter
from waiting import wait_for

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.context import Cancelled, Context
from coldsnap_runtime.namespaces import dial
from coldsnap_runtime.unit_processes import _before_gap

pytestmark = pytest.mark.criu

BIG = counter().replace("state = {", 'ballast = bytes(b"x") * (400 << 20)\nstate = {')
"""Takes CRIU long enough to be disturbed."""


@pytest.fixture
def image(workplace: Workplace) -> Path:
    """A capture of the counter, whose engine has ended; a copy that may be damaged."""
    record = workplace.serve(workplace.script("counter.py", counter()))
    captured = workplace.checkpoint(record)
    workplace.stop(record)
    return Path(captured["capture_dir"])


def refused(action: Callable[[], Any], code: str) -> ColdSnapError:
    with pytest.raises(ColdSnapError) as caught:
        action()
    error = caught.value
    assert error.code == code, (error, error.details)
    assert error.where == "unit u0"
    assert "\n" not in error.message
    return error


@contextmanager
def in_background(work: Callable[[], None]) -> Iterator[None]:
    """`work` beside what is inside; that it failed is told, for then nothing was disturbed."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        try:
            yield
        finally:
            done.result()


def criu_pid(workplace: Workplace, phase: str) -> int:
    """The pid of CRIU itself once its log has reached `phase`."""
    work = workplace.store.paths("u0", 1).work

    def found() -> int:
        try:
            if phase not in (work / "dump.log").read_text():
                return 0
            entered = int((work / "criu.pid").read_text().split()[0])
            return int(Path(f"/proc/{entered}/task/{entered}/children").read_text().split()[0])
        except FileNotFoundError:
            return 0  # before it began

    return wait_for(found, f"CRIU to say {phase!r}")


def no_capture_is_left(workplace: Workplace) -> bool:
    folder = workplace.state_dir / "captures" / "u0"
    return not folder.exists() or list(folder.iterdir()) == []


def test_a_client_that_is_connected(workplace: Workplace) -> None:
    record = workplace.serve(workplace.script("counter.py", counter()))
    assert record.init is not None
    with dial(record.init.pid, 8000, 5.0) as client:
        name = "{}:{}".format(*client.getsockname())
        error = refused(lambda: workplace.checkpoint(record), "checkpoint.connections-open")
        assert any(name in line for line in error.details)
    assert workplace.answers(record)
    assert no_capture_is_left(workplace)


def test_a_unit_that_is_not_quiesced(workplace: Workplace) -> None:
    record = workplace.serve(workplace.script("counter.py", counter()))
    workplace.quiesced_state = "serving"
    error = refused(lambda: workplace.checkpoint(record), "checkpoint.not-quiesced")
    assert error.remedy


def test_criu_is_killed_during_the_dump(workplace: Workplace) -> None:
    record = workplace.serve(workplace.script("big.py", BIG))
    before = workplace.ask(record)
    with in_background(lambda: os.kill(criu_pid(workplace, "Dumping pages"), signal.SIGKILL)):
        error = refused(lambda: workplace.checkpoint(record), "criu.dump-failed")
    assert "killed" in error.cause
    wait_for(lambda: workplace.answers(record), "the engine, let go by CRIU's end, to answer")
    assert workplace.ask(record)["n"] > before["n"], "it is the same one"
    assert no_capture_is_left(workplace)
    restored = workplace.restore(workplace.checkpoint(record)["capture_dir"])
    assert workplace.ask(restored)["sha"] == before["sha"]


def test_the_engine_dies_during_the_dump(workplace: Workplace) -> None:
    record = workplace.serve(workplace.script("big.py", BIG))
    assert record.init is not None

    def kill() -> None:
        criu_pid(workplace, "Dumping pages")
        assert record.init is not None
        os.kill(record.init.pid, signal.SIGKILL)

    with in_background(kill):
        error = refused(lambda: workplace.checkpoint(record), "checkpoint.engine-died")
    assert error.changed
    assert no_capture_is_left(workplace)
    wait_for(lambda: workplace.store.load("u0", 1).state == "dead", "the unit to be dead")


def test_the_verb_is_killed_during_the_dump(workplace: Workplace) -> None:
    """The engine goes on by itself, and a second try cleans up and succeeds."""
    record = workplace.serve(workplace.script("big.py", BIG))
    child = os.fork()
    if child == 0:
        os.setsid()
        workplace.checkpoint(record)
        os._exit(0)
    criu_pid(workplace, "Dumping pages")
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert [p.name for p in (workplace.state_dir / "captures/u0").iterdir()] == ["c1.partial"]
    wait_for(lambda: workplace.answers(record), "the engine to answer")
    restored = workplace.restore(workplace.checkpoint(record)["capture_dir"])
    assert workplace.answers(restored)


def test_the_disk_is_full(workplace: Workplace) -> None:
    record = workplace.serve(workplace.script("big.py", BIG))
    captures = workplace.state_dir / "captures"
    captures.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", captures], check=True)
    try:
        error = refused(lambda: workplace.checkpoint(record), "criu.dump-failed")
        assert "full" in error.cause
        assert any("No space left" in line for line in error.details)
        assert no_capture_is_left(workplace)
    finally:
        subprocess.run(["umount", captures], check=True)
    assert workplace.answers(record)


def test_io_uring_is_kept_away(workplace: Workplace) -> None:
    text = "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"
    text += "print([(libc.syscall(n, 8, 0), ctypes.get_errno()) for n in (425, 426, 427)])\n"
    record = workplace.serve(workplace.script("ring.py", text + counter()))
    assert workplace.log(record).startswith("[(-1, 38), (-1, 38), (-1, 38)]")


def test_io_uring_where_it_is_allowed_is_explained(workplace: Workplace) -> None:
    text = "import ctypes; libc = ctypes.CDLL(None)\n"
    text += "print(libc.syscall(425, 8, ctypes.create_string_buffer(256)), flush=True)\n"
    record = workplace.serve(workplace.script("ring.py", text + counter()), io_uring="allow")
    if workplace.log(record).startswith("-1"):
        pytest.skip("this kernel has no io_uring")
    error = refused(lambda: workplace.checkpoint(record), "criu.dump-failed")
    assert f"pid 1001 ({Path(sys.executable).name[:15]}) holds an io_uring" in error.cause
    assert "io_uring: deny" in error.remedy
    assert workplace.answers(record)


@pytest.mark.parametrize(
    "name",
    [
        *("images/inventory.img", "images/pstree.img", "capture.json", "bin/coldsnap-unit"),
        *("files/shm.data", "files/tmp.json"),
    ],
)
def test_a_missing_file_of_the_image(workplace: Workplace, image: Path, name: str) -> None:
    (image / name).unlink()
    error = refused(lambda: workplace.restore(image), "image.incomplete")
    assert name in error.message
    assert [r.generation for r in workplace.store.generations("u0")] == [1]


def test_a_missing_image_of_a_process(workplace: Workplace, image: Path) -> None:
    (image / "images" / "core-1001.img").unlink()
    error = refused(lambda: workplace.restore(image), "criu.restore-failed")
    assert "image" in error.cause
    log = next(line for line in error.details if line.startswith("log: ")).removeprefix("log: ")
    assert "Error" in Path(log).read_text()
    assert [r.generation for r in workplace.store.generations("u0")] == [1]


def test_truncated_pages_end_at_the_deadline(workplace: Workplace, image: Path) -> None:
    """CRIU would try for ever; its tasks too."""
    pages = max((image / "images").glob("pages-*.img"), key=lambda path: path.stat().st_size)
    pages.chmod(0o600)
    os.truncate(pages, pages.stat().st_size - (1 << 20))
    began = time.monotonic()
    error = refused(
        lambda: workplace.restore(image, deadline=3.0, image_mode="plain"), "criu.timeout"
    )
    assert time.monotonic() - began < 8
    assert "truncated" in error.cause
    assert not _is_running("counter.py")


@contextmanager
def cancelled_after(seconds: float, context: Context) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, lambda *_: context.cancel())
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with pytest.raises(Cancelled):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_cancelled_restore_leaves_nothing(workplace: Workplace, image: Path) -> None:
    pages = max((image / "images").glob("pages-*.img"), key=lambda path: path.stat().st_size)
    pages.chmod(0o600)
    os.truncate(pages, pages.stat().st_size - (1 << 20))  # it would never end
    with cancelled_after(1.0, workplace.context):
        workplace.restore(image, image_mode="plain")
    assert [r.generation for r in workplace.store.generations("u0")] == [1]
    assert not _is_running("counter.py")


def test_a_cancelled_dump_lets_the_engine_serve(workplace: Workplace) -> None:
    record = workplace.serve(workplace.script("big.py", BIG))
    with cancelled_after(0.3, workplace.context):
        workplace.checkpoint(record)
    assert workplace.answers(record)
    assert workplace.store.load("u0").state == "serving"
    assert no_capture_is_left(workplace)


def test_numbers_beyond_what_this_host_gives_out(workplace: Workplace, image: Path) -> None:
    path = image / "capture.json"
    path.chmod(0o600)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"last_pid": 1 << 23}))
    error = refused(lambda: workplace.restore(image), "restore.pid-limit")
    assert "kernel.pid_max" in error.remedy


@pytest.mark.parametrize(
    ("used", "limit", "expected"),
    [
        ([299, 1000, 1001, 1040], 32768, 1040),
        ([299, 1000, 32000, 32766], 32768, 1000),
        ([299, 400, 20000, 32766], 32768, 400),
        ([299, 32766], 32768, 299),
    ],
)
def test_what_is_started_after_a_restore_meets_no_captured_number(
    used: list[int], limit: int, expected: int
) -> None:
    assert _before_gap(used, limit) == expected


def test_a_damaged_file_set(workplace: Workplace, image: Path) -> None:
    index = image / "files" / "tmp.json"
    value = json.loads(index.read_text())
    value["entries"].append({"path": "../../escaped", "type": "dir", "mode": 0, "uid": 0, "gid": 0})
    index.chmod(0o600)
    index.write_text(json.dumps(value))
    error = refused(lambda: workplace.restore(image), "image.file-set-damaged")
    assert "../../escaped" in error.message


def test_a_replica_has_an_id_of_its_own(workplace: Workplace, image: Path) -> None:
    assert workplace.restore(image, unit="replica").unit == "replica"


@pytest.mark.parametrize("damage", ["changed", "grown", "missing"])
def test_a_mapped_file_that_is_not_the_captured_one(workplace: Workplace, damage: str) -> None:
    library = workplace.state_dir.parent / "engines" / "library.bin"
    text = f"import mmap; f = open({str(library)!r}, 'rb'); m = mmap.mmap(f.fileno(), 0, prot=1)\n"
    script = workplace.script("mapping.py", text + counter())
    library.write_bytes(b"a" * 100_000)
    record = workplace.serve(script)
    captured = workplace.checkpoint(record)
    workplace.stop(record)
    assert str(library) in [file["path"] for file in captured["mapped_files"]]
    if damage == "missing":
        library.unlink()
    else:
        library.write_bytes(b"b" * (100_000 if damage == "changed" else 100_001))
    error = refused(lambda: workplace.restore(captured["capture_dir"]), "restore.library-changed")
    assert str(library) in error.message
    expected = {"changed": "same size", "grown": "100,001 bytes", "missing": "found nothing"}
    assert expected[damage] in error.details[0]
    assert [r.generation for r in workplace.store.generations("u0")] == [1], "nothing was started"

    library.write_bytes(b"a" * 100_000)  # the same bytes in another file are fine
    assert workplace.answers(workplace.restore(captured["capture_dir"]))


def test_a_log_that_grew_or_went(workplace: Workplace) -> None:
    own_log = workplace.state_dir.parent / "own.log"
    text = f"import threading, time; log = open({str(own_log)!r}, 'a', buffering=1)\n"
    text += "tick = lambda: [(log.write('tick\\n'), time.sleep(0.05)) for _ in iter(int, 1)]\n"
    text += "threading.Thread(target=tick, daemon=True).start()\n"
    folder = str(own_log.parent)
    mounts = [{"source": folder, "target": folder, "read_only": False}]
    script = workplace.script("logging.py", text + counter())
    record = workplace.serve(script, mounts=mounts)
    captured = workplace.checkpoint(record)
    time.sleep(0.2)
    workplace.stop(record)

    for _ in range(2):
        size = own_log.stat().st_size
        restored = workplace.restore(captured["capture_dir"])
        wait_for(lambda size=size: own_log.stat().st_size > size, "the log to grow")
        workplace.stop(restored)
    own_log.unlink()
    workplace.restore(captured["capture_dir"])
    wait_for(own_log.exists, "the log to be there again")


def test_a_host_port_that_is_taken(workplace: Workplace) -> None:
    port = {"name": "http", "inner": 8000, "host": "127.0.0.1", "port": 19210}
    record = workplace.serve(workplace.script("counter.py", counter()), ports=[port])
    with socket.create_server(("127.0.0.1", 19210)):
        error = refused_anywhere(lambda: workplace.expose(record), "expose.port-taken")
    assert "19210" in error.message
    assert not workplace.store.load("u0").exposed
    workplace.expose(record)
    assert workplace.store.load("u0").exposed


def refused_anywhere(action: Callable[[], Any], code: str) -> ColdSnapError:
    with pytest.raises(ColdSnapError) as caught:
        action()
    assert caught.value.code == code, (caught.value, caught.value.details)
    return caught.value


def test_an_engine_that_cannot_be_started(workplace: Workplace) -> None:
    script = workplace.script("counter.py", counter())
    record = workplace.launch(script, argv=["/nowhere/engine"])
    wait_for(lambda: workplace.store.load("u0").state == "dead", "the unit to be dead")
    assert "run /nowhere/engine: No such file or directory" in workplace.log(record)
    assert (workplace.store.paths("u0", 1).work / "status").read_text() == "exited 127\n"


def test_a_mount_that_is_not_there(workplace: Workplace) -> None:
    script = workplace.script("counter.py", counter())
    mounts = [{"source": "/nowhere/model", "target": "/models/x"}]
    error = refused_anywhere(lambda: workplace.launch(script, mounts=mounts), "unit.start-failed")
    assert "open /nowhere/model: No such file or directory" in error.message
    assert workplace.store.generations("u0") == []


def test_files_go_back_to_the_owner_of_the_state_folder(workplace: Workplace) -> None:
    shutil.chown(workplace.state_dir, 12345, 12345)
    record = workplace.serve(workplace.script("counter.py", counter()))
    workplace.checkpoint(record)
    assert record.init is not None
    with dial(record.init.pid, 8000, 5.0):
        refused(lambda: workplace.checkpoint(record, "c2"), "checkpoint.connections-open")
    with pytest.raises(ColdSnapError):
        workplace.restore(workplace.state_dir / "nothing")
    assert workplace.log(record)
    paths = workplace.store.paths("u0", 1)
    assert paths.tmp.lstat().st_uid == 0, "what the engine writes stays as it is while it runs"
    workplace.stop(record)
    owners = {str(path): path.lstat().st_uid for path in workplace.state_dir.rglob("*")}
    assert {path for path, uid in owners.items() if uid != 12345} == set()


def _is_running(text: str) -> bool:
    done = subprocess.run(["ps", "-eo", "stat,args"], capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("Z")]
    return any(text in line and sys.executable in line for line in lines)
