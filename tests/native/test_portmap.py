"""coldsnap-portmap from the outside: bytes, ends, limits, hand-over, hold."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from waiting import wait_for

HOST_PORT, INNER_PORT, OTHER_INNER = 19280, 19281, 19282
HOME = "127.0.0.1"


class Portmap:
    def __init__(self, program: Path, *options: str) -> None:
        reading, writing = os.pipe()
        self.process = subprocess.Popen(
            [str(program), "--report", str(writing), *options],
            pass_fds=(writing,),
            stderr=subprocess.PIPE,
        )
        os.close(writing)
        with os.fdopen(reading) as report:
            self.report = report.read().strip()

    def end(self, number: int = signal.SIGTERM, seconds: float = 10) -> int:
        self.process.send_signal(number)
        return self.process.wait(seconds)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        _, stderr = self.process.communicate()
        assert b"Sanitizer" not in stderr, stderr.decode()
        assert b"runtime error" not in stderr, stderr.decode()


class Server:
    """Echoes `prefix` and everything it gets, until the end is said; counts connections."""

    def __init__(self, port: int, prefix: bytes = b"") -> None:
        self.socket = socket.create_server((HOME, port))
        self.prefix = prefix
        self.count = 0
        self.ends: list[str] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                self.count += 1
                threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        try:
            with connection:
                connection.sendall(self.prefix)
                while block := connection.recv(1 << 16):
                    connection.sendall(block)
            self.ends.append("end")
        except OSError as error:
            self.ends.append(type(error).__name__)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self.socket.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(INNER_PORT, b"one ")
    yield server
    server.close()


@pytest.fixture
def portmap(portmap_program: Path, server: Server) -> Iterator[Portmap]:
    portmap = Portmap(portmap_program, "--port", HOME, str(HOST_PORT), str(INNER_PORT))
    assert portmap.report == "ready"
    yield portmap
    portmap.close()


def talk(data: bytes, port: int = HOST_PORT, timeout: float = 10) -> bytes:
    """What comes back. A reset is told once: to the sender or to the reader, who asks first."""
    with (
        socket.create_connection((HOME, port), timeout) as connection,
        ThreadPoolExecutor(1) as pool,
    ):
        sending = pool.submit(_send_all, connection, data)
        received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        sending.result()
    return received


def _send_all(connection: socket.socket, data: bytes) -> None:
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


def test_bytes_pass_both_ways_and_half_close_too(portmap: Portmap) -> None:
    data = os.urandom(8 << 20)
    answer = talk(data)
    assert hashlib.sha256(answer).digest() == hashlib.sha256(b"one " + data).digest()
    assert portmap.end() == 0


def test_many_connections_at_once(portmap: Portmap, server: Server) -> None:
    del portmap
    results: list[bytes] = []
    threads = [
        threading.Thread(target=lambda i=i: results.append(talk(b"%d" % i * 5000)))
        for i in range(60)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted(b"one " + b"%d" % i * 5000 for i in range(60))
    assert server.count == 60


def test_a_slow_reader_does_not_grow_memory_nor_stop_others(portmap: Portmap) -> None:
    with socket.create_connection((HOME, HOST_PORT), 5) as slow:
        slow.setblocking(False)
        sent = 0
        for _ in range(200):
            try:
                sent += slow.send(bytes(1 << 20))
            except BlockingIOError:
                time.sleep(0.005)
        assert talk(b"x") == b"one x"
        status = Path(f"/proc/{portmap.process.pid}/status").read_text()
        resident = int(status.split("VmRSS:")[1].split()[0])
        limit = 80_000 if "sanitized" in str(portmap.process.args) else 4_000
        assert resident < limit, f"{resident} KiB after {sent} bytes nobody reads"


def test_an_idle_portmap_uses_no_processor(portmap: Portmap) -> None:
    with socket.create_connection((HOME, HOST_PORT), 5) as half:
        half.shutdown(socket.SHUT_WR)
        time.sleep(0.2)
        before = _ticks(portmap.process.pid)
        time.sleep(0.5)
        assert _ticks(portmap.process.pid) - before <= 2


def _ticks(pid: int) -> int:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(words[11]) + int(words[12])


def test_refused_inside_is_refused_outside(portmap: Portmap, server: Server) -> None:
    server.close()
    with pytest.raises(ConnectionError):
        talk(b"x")
    assert portmap.process.poll() is None


def test_a_taken_port_is_reported(portmap: Portmap, portmap_program: Path) -> None:
    del portmap
    second = Portmap(portmap_program, "--port", HOME, str(HOST_PORT), str(INNER_PORT))
    assert second.report == f"error listen at {HOME} port {HOST_PORT}: Address already in use"
    assert second.process.wait(5) == 1
    second.close()


@pytest.mark.parametrize("address", ["localhost", "0.0.0.0.0", ""])
def test_an_address_must_be_numeric(programs: Path, address: str) -> None:
    portmap = Portmap(programs / "coldsnap-portmap", "--port", address, "19299", "1")
    assert portmap.report.endswith("Invalid argument")
    portmap.close()


def test_connections_are_bounded(portmap_program: Path, server: Server) -> None:
    options = ("--connections", "2", "--port", HOME, str(HOST_PORT), str(INNER_PORT))
    portmap = Portmap(portmap_program, *options)
    try:
        with contextlib.ExitStack() as stack:
            first, second, third = (
                stack.enter_context(socket.create_connection((HOME, HOST_PORT), 5))
                for _ in range(3)
            )
            assert first.recv(4) == second.recv(4) == b"one "
            third.settimeout(0.3)
            with pytest.raises(TimeoutError):
                third.recv(4)
            first.close()
            third.settimeout(5)
            assert third.recv(4) == b"one ", "served once another has ended"
    finally:
        portmap.close()
    assert server.count == 3


def test_hold_makes_callers_wait_and_loses_none(portmap: Portmap, server: Server) -> None:
    with socket.create_connection((HOME, HOST_PORT), 5) as idle:
        assert idle.recv(4) == b"one "
        portmap.process.send_signal(signal.SIGUSR1)
        time.sleep(0.1)
        with socket.create_connection((HOME, HOST_PORT), 5) as waiting:
            waiting.sendall(b"hello")
            time.sleep(0.2)
            assert server.count == 1
            idle.sendall(b"still")
            assert idle.recv(9) == b"still", "what is open goes on"
            portmap.process.send_signal(signal.SIGHUP)
            assert idle.recv(9) == b"", "until it is cut"
            wait_for(lambda: server.ends == ["end"])
            portmap.process.send_signal(signal.SIGUSR2)
            assert waiting.recv(4) == b"one "
            assert waiting.recv(5) == b"hello"


def test_a_hold_that_nobody_ends_ends_by_itself(portmap_program: Path, server: Server) -> None:
    options = ("--hold", "1", "--port", HOME, str(HOST_PORT), str(INNER_PORT))
    portmap = Portmap(portmap_program, *options)
    portmap.process.send_signal(signal.SIGUSR1)
    time.sleep(0.1)
    began = time.monotonic()
    assert talk(b"x") == b"one x"
    assert 0.5 < time.monotonic() - began < 60, "not the ten minutes of the default"
    assert server.count == 1
    portmap.close()


def test_hand_over_refuses_nobody(portmap_program: Path, server: Server) -> None:
    """Clients that connect all the time while one portmap replaces the other, five times."""
    del server
    other = Server(OTHER_INNER, b"two ")
    answers: list[bytes] = []
    errors: list[BaseException] = []
    is_over = threading.Event()

    def client() -> None:
        while not is_over.is_set():
            try:
                answers.append(talk(b"x"))
            except OSError as error:
                errors.append(error)

    current = Portmap(portmap_program, "--port", HOME, str(HOST_PORT), str(INNER_PORT))
    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(5):
            time.sleep(0.15)
            inner = str(OTHER_INNER if turn % 2 == 0 else INNER_PORT)
            take = ("--take-from", str(current.process.pid))
            following = Portmap(portmap_program, *take, "--port", HOME, str(HOST_PORT), inner)
            assert following.report == "ready"
            assert current.process.wait(5) == 0, "the one before ends by itself"
            current.close()
            current = following
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
        current.close()
        other.close()
    assert errors == []
    assert set(answers) == {b"one x", b"two x"}


def test_an_open_connection_survives_term_for_the_drain(
    portmap_program: Path, server: Server
) -> None:
    del server
    options = ("--drain", "1", "--port", HOME, str(HOST_PORT), str(INNER_PORT))
    portmap = Portmap(portmap_program, *options)
    with socket.create_connection((HOME, HOST_PORT), 5) as connection:
        assert connection.recv(4) == b"one "
        portmap.process.send_signal(signal.SIGTERM)
        connection.sendall(b"last words")
        assert connection.recv(20) == b"last words"
        wait_for(lambda: _refuses(HOST_PORT))
        assert portmap.process.wait(5) == 0
        assert connection.recv(1) == b""
    portmap.close()


def _refuses(port: int) -> bool:
    try:
        socket.create_connection((HOME, port), 1).close()
    except ConnectionRefusedError:
        return True
    return False


def test_it_ends_with_its_unit(portmap_program: Path, server: Server) -> None:
    del server
    if os.geteuid() != 0:
        pytest.skip("entering a network namespace needs root")
    unit = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    options = ("--unit", str(unit.pid), "--port", HOME, str(HOST_PORT), str(INNER_PORT))
    portmap = Portmap(portmap_program, *options)
    assert portmap.report == "ready"
    assert talk(b"x") == b"one x"
    unit.kill()
    unit.wait()
    assert portmap.process.wait(5) == 0
    portmap.close()
