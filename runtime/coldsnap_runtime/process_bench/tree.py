"""The synthetic engine: two processes full of what engines hold, a server, a working set.

Run by path with a bare Python: ``tree.py PORT BYTES [CHILD]``, CHILD being
the share of the child process; 0: there is none. ``GET /ping`` touches a 64th of the
memory as a first request does, ``GET /sum`` is the digest of all of it.
"""

from __future__ import annotations

import http.server
import json
import os
import random
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from typing import Any

_BLOCK = os.urandom(16 << 20)
_BIG = 128 << 20
_THREADS = 8
_PER_OBJECT = 420
"""Bytes that one entry of the table costs, about."""


def _random(rng: random.Random, size: int) -> bytearray:
    """`size` bytes that no page shares with its neighbours."""
    out = bytearray()
    while len(out) < size:
        at = rng.randrange(len(_BLOCK) // 2)
        out += memoryview(_BLOCK)[at : at + size - len(out)]
    return out


class Memory:
    """Half of it in big arrays, the rest in middling and small ones, objects, thread arenas."""

    def __init__(self, size: int, seed: int) -> None:
        rng = random.Random(seed)  # noqa: S311  (no secrets)
        self.arrays: list[bytearray] = []
        self._fill(rng, size * 0.5, lambda: min(_BIG, max(1 << 20, size // 8)))
        self._fill(rng, size * 0.24, lambda: rng.randrange(256 << 10, 3 << 20))
        self._fill(rng, size * 0.08, lambda: rng.randrange(1 << 10, 100 << 10))
        self.objects: dict[str, list[Any]] = {
            f"key-{i}": [i, f"val-{i}-{i * 7}", (i, i + 1), {"a": i} if i % 4 == 0 else None]
            for i in range(int(size * 0.15) // _PER_OBJECT)
        }
        self._parts: list[list[bytearray]] = [[] for _ in range(_THREADS)]
        self._forever = threading.Event()
        self._are_full = threading.Semaphore(0)
        for number in range(_THREADS):
            threading.Thread(
                target=self._work, args=(number, int(size * 0.03) // _THREADS, seed), daemon=True
            ).start()
        for _ in range(_THREADS):
            self._are_full.acquire()

    def _fill(self, rng: random.Random, total: float, size_of: Callable[[], int]) -> None:
        done = 0
        while done < total:
            size = size_of()
            self.arrays.append(_random(rng, size))
            done += size

    def _work(self, number: int, size: int, seed: int) -> None:
        """A thread with an arena of its own, which then sleeps for good."""
        rng = random.Random(seed + number)  # noqa: S311
        part, done = self._parts[number], 0
        while done < size:
            part.append(_random(rng, rng.randrange(2000, 60000)))
            done += len(part[-1])
        self._are_full.release()
        self._forever.wait()

    def ping(self) -> int:
        total: int = 0
        for i in range(0, len(self.objects), max(1, len(self.objects) // 20000)):
            total += self.objects[f"key-{i}"][0]
        for array in self.arrays:
            total += sum(array[:: max(65536, len(array) // 256)])
        return total

    def digest(self) -> str:
        crc = 0
        for array in (*self.arrays, *(a for part in self._parts for a in part)):
            crc = zlib.crc32(array, crc)
        for item in self.objects.items():
            crc = zlib.crc32(repr(item).encode(), crc)
        return f"{crc:08x}"


def _child(size: int) -> None:
    memory = Memory(size, 2)
    print("ready", flush=True)
    for line in sys.stdin:
        print(memory.ping() if line == "ping\n" else memory.digest(), flush=True)


class _Both:
    """This process and its child, which is asked through pipes."""

    def __init__(self, size: int, child_share: float) -> None:
        mine = int(size * (1 - child_share))
        self._lock = threading.Lock()
        self._child: subprocess.Popen[str] | None = None
        if not child_share:
            self._memory = Memory(mine, 1)
            return
        self._child = subprocess.Popen(
            [sys.executable, "-S", __file__, "child", str(size - mine)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._memory = Memory(mine, 1)
        self._said()

    def _said(self) -> str:
        assert self._child is not None  # noqa: S101
        assert self._child.stdout is not None  # noqa: S101
        return self._child.stdout.readline().strip()

    def ask(self, word: str) -> list[str]:
        with self._lock:
            if self._child is not None:
                assert self._child.stdin is not None  # noqa: S101
                self._child.stdin.write(f"{word}\n")
                self._child.stdin.flush()
            own = self._memory.ping() if word == "ping" else self._memory.digest()
            return [str(own), self._said()] if self._child is not None else [str(own)]


def serve(port: int, size: int, child_share: float) -> None:
    both = _Both(size, child_share)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            word = self.path.strip("/")
            answer = both.ask(word) if word in ("ping", "sum") else ["up"]
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            """Its log would only grow."""

    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "child":
        _child(int(sys.argv[2]))
    else:
        serve(int(sys.argv[1]), int(sys.argv[2]), float("".join(sys.argv[3:4]) or 0.2))
