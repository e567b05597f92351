"""A writer of fill.index for tests, and a process whose memory is filled."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

PAGE = 4096
CHUNK = 1 << 20
HUGE, MAPPED = 1, 2

PARKED = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
starts = []
for size in json.loads(sys.argv[1]):
    at = libc.mmap(None, size + (2 << 20), 0, 0x22, -1, 0)  # apart from all others
    at = (at + (1 << 20)) & ~0xFFF
    starts.append(libc.mmap(at, size, 3, 0x32, -1, 0))
print(json.dumps(starts), flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


@dataclass
class Parked:
    """A process that waits, with private anonymous memory of the sizes asked for."""

    sizes: Sequence[int]
    process: subprocess.Popen[str] = field(init=False)
    starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        argv = [sys.executable, "-c", PARKED, json.dumps(list(self.sizes))]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True)
        assert self.process.stdout
        self.starts = json.loads(self.process.stdout.readline())

    @property
    def pid(self) -> int:
        return self.process.pid

    def run(self, expression: str) -> str:
        """What an expression of Python is there, as text."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def read(self, address: int, size: int) -> bytes:
        with Path(f"/proc/{self.pid}/mem").open("rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(size)

    def write(self, address: int, data: bytes) -> None:
        with Path(f"/proc/{self.pid}/mem").open("r+b", buffering=0) as memory:
            memory.seek(address)
            memory.write(data)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


@dataclass
class Index:
    """The tables of a fill.index, which `pack` writes without digests, as the rewriter does."""

    files: list[tuple[str, int]]
    processes: list[int]
    areas: list[tuple[int, int, int, int]]
    """process, flags, start, end"""
    runs: list[tuple[int, int, int, int, int]]
    """process, file, address, bytes, offset"""
    chunk: int = CHUNK
    magic: bytes = b"CSFILL01"

    def pack(self) -> bytearray:
        out = bytearray()
        first = 0
        runs = b""
        for process, file, address, size, offset in self.runs:
            runs += struct.pack("<IIQQQQ", process, file, address, size, offset, first)
            first += -(-size // self.chunk)
        out += struct.pack(
            "<8s8IQ", self.magic, len(self.files), len(self.processes), len(self.areas),
            len(self.runs), first, self.chunk, 1, 0, sum(run[3] for run in self.runs),
        )  # fmt: skip
        for name, size in self.files:
            out += struct.pack("<Q64s", size, name.encode())
        for pid in self.processes:
            out += struct.pack("<II", pid, 0)
        for area in self.areas:
            out += struct.pack("<IIQQ", *area)
        return out + runs + bytes(32 * (first + 1))


@dataclass(frozen=True)
class Answer:
    status: int
    said: dict[str, object]


def call(program: Path, *arguments: object, timeout: float = 60) -> Answer:
    """Run the program; its one line."""
    done = subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, check=False,
        timeout=timeout,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) == 1, done
    return Answer(done.returncode, json.loads(lines[0]))
