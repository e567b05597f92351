"""What this machine can do at most, by the plainest means: the ceilings of a bench."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from coldsnap_runtime.hydrate.bench_file import CHUNK, BenchFile, HostMemory
from coldsnap_runtime.hydrate.library import Library
from coldsnap_runtime.hydrate.structures import Algorithm

_WRITERS = 8


def read_rate(file: BenchFile, memory: HostMemory, threads: int) -> float:
    """Bytes per second of `threads` threads that read the file into memory, and nothing else."""
    descriptor = os.open(file.path, os.O_RDONLY)
    try:

        def read(at: int) -> None:
            start = at % (memory.size - CHUNK + 1) if memory.size > CHUNK else 0
            start -= start % CHUNK
            os.preadv(descriptor, [memory.view[start : start + CHUNK]], at)

        return _rate(file.size, threads, range(0, file.size, CHUNK), read)
    finally:
        os.close(descriptor)


def digest_rate(
    library: Library, memory: HostMemory, size: int, algorithm: Algorithm, threads: int
) -> float:
    """Bytes per second that `threads` threads hash out of memory."""

    def digest(at: int) -> None:
        library.digest_at(algorithm, memory.address + at, min(CHUNK, size - at))

    return _rate(size, threads, range(0, size, CHUNK), digest)


def direct_write_rate(folder: Path, memory: HostMemory, size: int) -> float:
    """Bytes per second of threads that write a new file by O_DIRECT and make it durable."""
    path = folder / "coldsnap-bench.plain"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        descriptor = os.open(path, flags | os.O_DIRECT, 0o600)
    except OSError:  # no O_DIRECT here
        path.unlink(missing_ok=True)
        descriptor = os.open(path, flags, 0o600)
    try:
        begin = time.monotonic()
        os.posix_fallocate(descriptor, 0, size)

        def write(at: int) -> None:
            start = at % max(memory.size - CHUNK, 1) // CHUNK * CHUNK
            os.pwritev(descriptor, [memory.view[start : start + min(CHUNK, size - at)]], at)

        _rate(size, _WRITERS, range(0, size, CHUNK), write)
        os.fsync(descriptor)
        return size / (time.monotonic() - begin)
    finally:
        os.close(descriptor)
        path.unlink()


def _rate(size: int, threads: int, jobs: Iterable[int], work: Callable[[int], None]) -> float:
    left, lock = iter(jobs), threading.Lock()
    errors: list[Exception] = []

    def serve() -> None:
        while not errors:
            with lock:
                job = next(left, None)
            if job is None:
                return
            try:
                work(job)
            except OSError as error:
                errors.append(error)

    workers = [threading.Thread(target=serve) for _ in range(threads)]
    begin = time.monotonic()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
    return size / (time.monotonic() - begin)
