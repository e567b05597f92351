"""What belongs to a unit beside its memory: shared memory, /tmp, caches, sockets, ports."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from pathlib import Path

import pytest
from unit_workplace import Workplace, counter, get_from_host
from waiting import wait_for

from coldsnap_runtime.unit_requests import Mount, Port

pytestmark = pytest.mark.criu

SHARED = """
import multiprocessing, multiprocessing.shared_memory as shm
semaphore = multiprocessing.Semaphore(3)
semaphore.acquire()
segment = shm.SharedMemory(create=True, size=16 << 20)
segment.buf[:5] = b"hello"
segment.buf[-5:] = b"world"
extra = lambda: {"shm": (bytes(segment.buf[:5]) + bytes(segment.buf[-5:])).decode(),
                 "sem": semaphore.get_value()}
"""

FILES = """
import pathlib, socket, tempfile
folder = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
kept = open(folder / "kept", "w+b"); kept.write(b"abc" * 1000); kept.flush()
gone = open(folder / "gone", "w+b"); gone.write(b"xyz"); gone.flush()
(folder / "gone").unlink()
(folder / "link").symlink_to("kept")
listening = socket.socket(socket.AF_UNIX)
listening.bind(str(folder / "socket"))
listening.listen()
def extra():
    gone.seek(0)
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(folder / "socket"))
    listening.accept()
    names = sorted(path.name for path in folder.iterdir())
    return {"gone": gone.read().decode(), "names": names, "size": (folder / "link").stat().st_size}
"""

TWO = """
import subprocess, sys
if sys.argv[1:] == ["child"]:
    import socket
    server = socket.create_server(("127.0.0.1", 8001))
    while True:
        connection, _ = server.accept()
        held = connection
        while data := connection.recv(100):
            connection.sendall(data[::-1])
child = subprocess.Popen([sys.executable, "-S", __file__, "child"])
import socket, time
for _ in range(200):
    try:
        peer = socket.create_connection(("127.0.0.1", 8001))
        break
    except OSError:
        time.sleep(0.02)
def extra():
    peer.sendall(b"abc")
    return {"reversed": peer.recv(100).decode(), "child": child.pid}
"""

GRACE = """
import signal, sys, time
def end(*_):
    print("ending", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if "ignore" in sys.argv else end)
"""


def with_extra(text: str) -> str:
    return text + counter().replace('"names": len(', '**extra(), "names": len(')


@pytest.mark.parametrize("text", [SHARED, FILES, TWO], ids=["shared", "files", "two-processes"])
def test_it_is_all_there_after_every_restore(workplace: Workplace, text: str) -> None:
    first = workplace.serve(workplace.script("engine.py", with_extra(text)))
    before = workplace.ask(first)
    captured = workplace.checkpoint(first)
    assert workplace.ask(first) == before | {"n": before["n"] + 1}
    workplace.stop(first)
    records = [workplace.restore(captured["capture_dir"]) for _ in range(2)]
    for record in records:
        assert workplace.ask(record) == before | {"n": before["n"] + 1}
    again = workplace.restore(workplace.checkpoint(records[1], "c2")["capture_dir"])
    assert workplace.ask(again) == before | {"n": before["n"] + 2}


def test_holes_of_shared_memory_cost_nothing(workplace: Workplace) -> None:
    record = workplace.serve(workplace.script("engine.py", with_extra(SHARED)))
    captured = workplace.checkpoint(record)
    assert captured["sizes"]["shm"] < 100_000


def test_caches_are_kept_and_private_after_a_restore(workplace: Workplace) -> None:
    cache = workplace.state_dir.parent / "cache"
    text = f"""
import mmap, pathlib
cache = pathlib.Path({str(cache)!r})
(cache / "kernels").mkdir(exist_ok=True)
(cache / "kernels" / "object.so").write_bytes(b"machine code" * 1000)
file = open(cache / "kernels" / "object.so", "rb")
mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
extra = lambda: {{"mapped": mapped[:12].decode(), "seen": (cache / "new").exists()}}
"""
    record = workplace.serve(workplace.script("engine.py", with_extra(text)), caches=[str(cache)])
    captured = workplace.checkpoint(record)
    workplace.stop(record)
    (cache / "kernels" / "object.so").write_bytes(b"other")
    (cache / "new").touch()
    restored = workplace.restore(captured["capture_dir"])
    answer = workplace.ask(restored)
    assert answer["mapped"] == "machine code"
    assert answer["seen"] is False
    assert (cache / "kernels" / "object.so").read_bytes() == b"other"


def test_the_log_goes_on_in_each_generation(workplace: Workplace) -> None:
    first = workplace.serve(workplace.script("counter.py", counter()))
    captured = workplace.checkpoint(first)
    workplace.ask(first)
    restored = workplace.restore(captured["capture_dir"])
    workplace.ask(restored)
    assert workplace.log(first).startswith("up\n")
    assert workplace.log(restored) == "request 2\n"


def test_models_are_mounted_read_only_and_may_move(workplace: Workplace) -> None:
    model = workplace.state_dir.parent / "model"
    model.mkdir()
    (model / "weights").write_bytes(b"w" * 4096)
    text = """
import os
weights = open("/srv/coldsnap-test-model/weights", "rb")
def extra():
    try:
        open("/srv/coldsnap-test-model/new", "w")
    except OSError as error:
        return {"error": error.errno, "weights": os.pread(weights.fileno(), 3, 0).decode()}
"""
    script = workplace.script("engine.py", with_extra(text))
    own = {"source": str(script.parent), "target": str(script.parent)}
    mounts = [own, {"source": str(model), "target": "/srv/coldsnap-test-model"}]
    try:
        record = workplace.serve(script, mounts=mounts)
        before = workplace.ask(record)
        assert before["error"] == 30
        captured = workplace.checkpoint(record)
        workplace.stop(record)
        moved = model.rename(model.with_name("moved"))
        there = (Mount(str(moved), "/srv/coldsnap-test-model"),)
        restored = workplace.restore(captured["capture_dir"], mounts=there)
        assert workplace.ask(restored)["weights"] == "www"
    finally:
        Path("/srv/coldsnap-test-model").rmdir()


def test_ports_are_placement(workplace: Workplace) -> None:
    port = {"name": "http", "inner": 8000, "host": "127.0.0.1", "port": 19220}
    first = workplace.serve(workplace.script("counter.py", counter()), ports=[port])
    workplace.expose(first)
    assert get_from_host(19220)["n"] > 0
    captured = workplace.checkpoint(first)
    there = (Port("http", 8000, "127.0.0.1", 19221),)
    second = workplace.restore(captured["capture_dir"], ports=there)
    workplace.expose(second)
    # Another generation's ports go when it is replaced: one unit is offered at one place.
    assert get_from_host(19221)["pid"] == 1001
    wait_for(lambda: _refuses(19220), "the old port to be free")
    workplace.stop(second)
    wait_for(lambda: _refuses(19221), "the port to be free")


def test_a_generation_replaces_the_other_without_a_refusal(workplace: Workplace) -> None:
    port = {"name": "http", "inner": 8000, "host": "127.0.0.1", "port": 19222}
    first = workplace.serve(workplace.script("counter.py", counter()), ports=[port])
    workplace.expose(first)
    captured = workplace.checkpoint(first)
    second = workplace.restore(captured["capture_dir"])
    errors: list[BaseException] = []
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            try:
                get_from_host(19222)
            except OSError as error:
                errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    for record in (second, first, second):
        workplace.expose(record)
        time.sleep(0.1)
    workplace.stop(first, grace=1)
    is_over.set()
    thread.join()
    assert errors == []
    assert [r.exposed for r in workplace.store.generations("u0")] == [False, True]


def test_idle_clients_do_not_stop_a_capture(workplace: Workplace) -> None:
    """Keep-alive connections through the port map are closed once the engine is drained."""
    port = {"name": "http", "inner": 8000, "host": "127.0.0.1", "port": 19223}
    text = counter().replace("    def do_GET", "    protocol_version = 'HTTP/1.1'\n    def do_GET")
    record = workplace.serve(workplace.script("counter.py", text), ports=[port])
    workplace.expose(record)
    client = http.client.HTTPConnection("127.0.0.1", 19223, timeout=5)
    client.request("GET", "/")
    n = json.loads(client.getresponse().read())["n"]
    captured = workplace.checkpoint(workplace.store.load("u0"))
    client.close()
    assert get_from_host(19223)["n"] == n + 1
    assert workplace.ask(workplace.restore(captured["capture_dir"]))["n"] == n + 1


def test_stop_gives_the_engine_time_to_end(workplace: Workplace) -> None:
    record = workplace.serve(workplace.script("engine.py", GRACE + counter()))
    began = time.monotonic()
    assert workplace.stop(record, grace=60)["graceful"]
    assert time.monotonic() - began < 30
    assert workplace.log(record).endswith("ending\n")
    assert not workplace.stop(record)["was_live"], "stopping twice is fine"


def test_stop_kills_an_engine_that_does_not_end(workplace: Workplace) -> None:
    script = workplace.script(
        "engine.py", GRACE.replace('"ignore" in sys.argv', "True") + counter()
    )
    record = workplace.serve(script)
    assert not workplace.stop(record, grace=0.3)["graceful"]
    assert record.init is not None
    assert not record.init.is_alive


def test_a_restored_engine_gets_the_same_signals(workplace: Workplace) -> None:
    first = workplace.serve(workplace.script("engine.py", GRACE + counter()))
    restored = workplace.restore(workplace.checkpoint(first)["capture_dir"])
    assert workplace.stop(restored, grace=10)["graceful"]
    assert workplace.log(restored) == "ending\n"


def test_the_host_network_is_possible(workplace: Workplace) -> None:
    port = {"name": "http", "inner": 19224, "host": "127.0.0.1", "port": 19224}
    script = workplace.script("engine.py", counter(19224))
    record = workplace.launch(script, ports=[port], network="host")
    wait_for(lambda: not _refuses(19224), "the engine to listen")
    record = workplace.store.update(record, state="serving")
    before = get_from_host(19224)
    captured = workplace.checkpoint(record)
    workplace.stop(record)
    restored = workplace.restore(captured["capture_dir"])
    workplace.expose(restored)
    assert get_from_host(19224)["n"] == before["n"] + 1


def _refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except ConnectionRefusedError:
        return True
    return False
