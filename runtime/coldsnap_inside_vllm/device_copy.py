"""Bytes between a file and the device, through pinned buffers, on several threads.

One thread copies 6 to 9 GB/s out of the page cache and a PCIe 5 link takes 55 GB/s, so reading
is shared out: each thread has its own stream and two pinned buffers, and reads one while the
other is on its way.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

_BLOCK = 16 << 20
_THREADS = 8
_TO_DEVICE, _TO_HOST = 1, 2


@dataclass(frozen=True)
class Copy:
    """`bytes` at `offset` of the file belong at device address `address`."""

    offset: int
    address: int
    bytes: int


class Runtime:
    """The few calls of the CUDA runtime that torch has loaded already."""

    def __init__(self) -> None:
        from vllm.distributed.device_communicators.cuda_wrapper import (  # noqa: PLC0415
            CudaRTLibrary,
        )

        self._library = CudaRTLibrary().lib

    def copy(self, target: int, source: int, size: int, kind: int, stream: int) -> None:
        import ctypes  # noqa: PLC0415

        _check(
            self._library.cudaMemcpyAsync(
                ctypes.c_void_p(target),
                ctypes.c_void_p(source),
                ctypes.c_size_t(size),
                ctypes.c_int(kind),
                ctypes.c_void_p(stream),
            )
        )

    def clear(self, target: int, size: int) -> None:
        import ctypes  # noqa: PLC0415

        _check(
            self._library.cudaMemset(
                ctypes.c_void_p(target), ctypes.c_int(0), ctypes.c_size_t(size)
            )
        )


class DeviceSource:
    """Device memory as something to read from (`coldsnap.artifact.pack` wants ``readinto``)."""

    def __init__(self, runtime: Runtime, address: int, size: int, bounce: Any, stream: Any) -> None:
        self._runtime, self._address, self._left = runtime, address, size
        self._bounce, self._stream = bounce, stream

    def readinto(self, buffer: memoryview) -> int:
        count: int = min(len(buffer), self._left, self._bounce.numel())
        self._runtime.copy(
            self._bounce.data_ptr(), self._address, count, _TO_HOST, self._stream.cuda_stream
        )
        self._stream.synchronize()
        buffer[:count] = self._bounce.numpy()[:count].data
        self._address += count
        self._left -= count
        return count


def bounce_buffer() -> Any:
    import torch  # noqa: PLC0415

    return torch.empty(_BLOCK, dtype=torch.uint8, pin_memory=True)


def fill(path: str, copies: Sequence[Copy], device: int) -> float:
    """Copy from the file to the device; returns the seconds it took.

    Raises:
        OSError: the file cannot be read, or ends early.
        RuntimeError: CUDA says no.
    """
    runtime = Runtime()
    begin = time.monotonic()
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        blocks = _Blocks(copies)
        with ThreadPoolExecutor(_THREADS, "coldsnap-fill") as pool:
            work = [
                pool.submit(_fill, runtime, descriptor, blocks, device) for _ in range(_THREADS)
            ]
            for one in work:
                one.result()
    finally:
        os.close(descriptor)
    return time.monotonic() - begin


class _Blocks:
    """What is left to copy, handed out block by block."""

    def __init__(self, copies: Sequence[Copy]) -> None:
        self._lock = threading.Lock()
        self._left = self._cut(copies)

    def take(self) -> Copy | None:
        with self._lock:
            return next(self._left, None)

    @staticmethod
    def _cut(copies: Sequence[Copy]) -> Iterator[Copy]:
        for copy in copies:
            for start in range(0, copy.bytes, _BLOCK):
                size = min(_BLOCK, copy.bytes - start)
                yield Copy(copy.offset + start, copy.address + start, size)


def _fill(runtime: Runtime, descriptor: int, blocks: _Blocks, device: int) -> None:
    import torch  # noqa: PLC0415

    torch.cuda.set_device(device)
    stream = torch.cuda.Stream()
    buffers = [bounce_buffer(), bounce_buffer()]
    events = [torch.cuda.Event(), torch.cuda.Event()]
    turn = 0
    while (block := blocks.take()) is not None:
        events[turn].synchronize()  # the buffer's last copy has left it
        view = memoryview(buffers[turn].numpy())[: block.bytes]
        _read_exactly(descriptor, view, block.offset)
        runtime.copy(
            block.address, buffers[turn].data_ptr(), block.bytes, _TO_DEVICE, stream.cuda_stream
        )
        events[turn].record(stream)
        turn ^= 1
    stream.synchronize()


def _read_exactly(descriptor: int, view: memoryview, offset: int) -> None:
    done = 0
    while done < len(view):
        count = os.preadv(descriptor, [view[done:]], offset + done)
        if count == 0:
            raise OSError(f"the payload ends at byte {offset + done}")
        done += count


def _check(code: int) -> None:
    if code != 0:
        raise RuntimeError(f"the CUDA runtime answers {code}")
