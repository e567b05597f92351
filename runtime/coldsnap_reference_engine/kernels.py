"""Matrix products in several ways: how a weight lies in memory, and who computes what.

A weight has shape [out, in] in a checkpoint and is used as ``y = x @ weight.T`` with x of shape
[width, in], width being the number of tokens computed together. None of the ways is best for
every shape, width and machine; `autotune` measures them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from coldsnap_reference_engine.blas import BlasThreads

Floats: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, order=True)
class Layout:
    """How a weight [out, in] lies in memory."""

    block: int = 0
    """0: rows, as in the checkpoint. n: blocks of n columns, [out / n, in, n]."""

    @property
    def name(self) -> str:
        return f"blocks{self.block}" if self.block else "rows"

    def shape(self, rows: int, columns: int) -> tuple[int, ...]:
        """Shape in memory of a weight [rows, columns]."""
        if not self.block:
            return rows, columns
        return rows // self.block, columns, self.block

    def fits(self, rows: int) -> bool:
        return not self.block or rows % self.block == 0

    def pack(self, weight: Floats, target: Floats) -> None:
        """Copy a weight [out, in] to `target`, which has this layout's shape."""
        np.copyto(target, self._blocks(weight))

    def unpack(self, packed: Floats, target: Floats) -> None:
        """The opposite of `pack`."""
        np.copyto(self._blocks(target), packed)

    def _blocks(self, weight: Floats) -> Floats:
        if not self.block:
            return weight
        rows, columns = weight.shape
        return weight.reshape(rows // self.block, self.block, columns).swapaxes(1, 2)


ROWS = Layout()


@dataclass(frozen=True, order=True)
class Kernel:
    """Who computes: `threads` of the BLAS library, or a crew of our own threads with one each."""

    threads: int = 1
    crew: bool = False

    @property
    def name(self) -> str:
        return f"{'crew' if self.crew else 'blas'}{self.threads}"


class Crew:
    """Threads that wait for parts of a job; the caller does part 0 itself."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._work: Callable[[int], None] | None = None
        self._errors: list[BaseException] = []
        self._begin = [threading.Semaphore(0) for _ in range(size - 1)]
        self._done = threading.Semaphore(0)
        for number in range(size - 1):
            threading.Thread(
                target=self._serve, args=(number,), name=f"crew-{number + 1}", daemon=True
            ).start()

    def run(self, work: Callable[[int], None], parts: int) -> None:
        """Call ``work(0)`` ... ``work(parts - 1)``, each in its thread; parts <= size."""
        self._work = work
        for number in range(parts - 1):
            self._begin[number].release()
        try:
            work(0)
        finally:
            for _ in range(parts - 1):
                self._done.acquire()
        if self._errors:
            raise self._errors.pop()

    def _serve(self, number: int) -> None:
        while True:
            self._begin[number].acquire()
            try:
                if self._work is not None:
                    self._work(number + 1)
            except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
                self._errors.append(error)
            finally:
                self._done.release()


class Multiplier:
    """Computes products by a given layout and kernel; for one caller at a time."""

    def __init__(self, crew: Crew, blas: BlasThreads) -> None:
        self._crew = crew
        self.blas = blas

    @property
    def crew_size(self) -> int:
        return self._crew.size

    def multiply(self, x: Floats, packed: Floats, layout: Layout, kernel: Kernel) -> Floats:
        """``x @ weight.T``: [width, in] and a packed weight to [width, out]."""
        self.blas.use(1 if kernel.crew else kernel.threads)
        if layout.block:
            return self._blocks(x, packed, kernel)
        if not kernel.crew:
            product: Floats = x @ packed.T
            return product
        out = np.empty((x.shape[0], packed.shape[0]), np.float32)
        cuts = _cuts(packed.shape[0], kernel.threads)

        def part(number: int) -> None:
            begin, end = cuts[number], cuts[number + 1]
            out[:, begin:end] = x @ packed[begin:end].T

        self._crew.run(part, kernel.threads)
        return out

    def _blocks(self, x: Floats, packed: Floats, kernel: Kernel) -> Floats:
        count, _, block = packed.shape
        if count == 1 and not kernel.crew:
            product: Floats = x @ packed[0]
            return product
        out = np.empty((x.shape[0], count, block), np.float32)
        if not kernel.crew:
            out.swapaxes(0, 1)[...] = np.matmul(x, packed)
            return out.reshape(x.shape[0], count * block)
        cuts = _cuts(count, kernel.threads)

        def part(number: int) -> None:
            begin, end = cuts[number], cuts[number + 1]
            out.swapaxes(0, 1)[begin:end] = np.matmul(x, packed[begin:end])

        self._crew.run(part, kernel.threads)
        return out.reshape(x.shape[0], count * block)


def _cuts(count: int, parts: int) -> list[int]:
    return [count * number // parts for number in range(parts + 1)]
