"""Timing one kind of matrix in every layout, width and kernel that could be the fastest."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from coldsnap_reference_engine.kernels import ROWS, Floats, Kernel, Layout, Multiplier
from coldsnap_reference_engine.transformer import Transformer
from coldsnap_reference_engine.weights import Kind

_BLOCKS = (64, 32, 128)
_SAMPLE_BYTES = 64 << 20
"""Weights timed in one pass: more than a cache holds, because a decoding step finds none there."""
_REPEATS = 5
_HOPELESS = 1.25
"""A candidate this much slower than the best of its width is not timed again."""
_ABOUT = 1.1
_GLANCES = 3
_GIVE_UP = 5.0
_TOLERANCE = 1e-3


@dataclass
class Timings:
    """Seconds per product of one kind of matrix."""

    seconds: dict[tuple[Layout, int, Kernel], float] = field(default_factory=dict)

    def layouts(self, widths: Sequence[int]) -> list[Layout]:
        """Layouts that have a kernel for each of the widths."""
        found = {(layout, width) for layout, width, _ in self.seconds}
        layouts = {layout for layout, _ in found}
        return sorted(layout for layout in layouts if all((layout, w) in found for w in widths))

    def best(self, layout: Layout, width: int) -> tuple[float, Kernel]:
        """Of a layout at a width: the kernel with the fewest threads that is about the fastest.

        Threads that gain little now lose much when the machine is busy.
        """
        found = {
            kernel: seconds
            for (other, at, kernel), seconds in self.seconds.items()
            if other == layout and at == width
        }
        limit = _ABOUT * min(found.values())
        kernel = min(kernel for kernel, seconds in found.items() if seconds <= limit)
        return found[kernel], kernel

    def fastest(self, width: int) -> float:
        return min((s for (_, at, _), s in self.seconds.items() if at == width), default=np.inf)


def search(transformer: Transformer, kind: Kind, widths: Sequence[int], seconds: float) -> Timings:
    """Time candidates on the model's own matrices of `kind`, which are in checkpoint layout.

    A kernel is admitted if its products are right, and, for decoding, if each row's result is
    the same bits whatever the other rows hold and whichever row it is. After `seconds` no
    further layout is begun.
    """
    sample = _sample(transformer, kind)
    timings = Timings()
    bench = _Bench(transformer.multiplier, sample, transformer.cache.slots, seconds)
    for layout in _layouts(sample[0].shape[0]):
        if bench.is_late() and timings.layouts(widths):
            break
        bench.pack(layout)
        for width in widths:
            for kernel in _kernels(transformer.multiplier):
                found = bench.time(width, kernel, timings.fastest(width))
                if found is not None:
                    timings.seconds[layout, width, kernel] = found
    return timings


def _sample(transformer: Transformer, kind: Kind) -> list[Floats]:
    extents = transformer.weights.of_kind(kind)
    count = max(1, min(len(extents), _SAMPLE_BYTES // extents[0].length))
    return [transformer.weights[extent.id] for extent in extents[:count]]


def _layouts(rows: int) -> Iterator[Layout]:
    """Those that win most often first: the others are then seen to be slower soon."""
    for block in _BLOCKS:
        if block < rows and Layout(block).fits(rows):
            yield Layout(block)
    yield ROWS
    yield Layout(rows)


def _kernels(multiplier: Multiplier) -> list[Kernel]:
    most = multiplier.crew_size
    counts = sorted({1, most // 2, most} - {0})
    kernels = [Kernel(1)]
    if multiplier.blas.adjustable:
        kernels += [Kernel(count) for count in counts if count > 1]
    return kernels + [Kernel(count, crew=True) for count in counts if count > 1]


class _Bench:
    def __init__(
        self, multiplier: Multiplier, sample: list[Floats], slots: int, seconds: float
    ) -> None:
        self._deadline = time.perf_counter() + seconds
        self._multiplier = multiplier
        self._rows = sample
        self._slots = slots
        self._layout = ROWS
        self._packed = sample
        self._random = np.random.Generator(np.random.PCG64(0))
        size = sum(weight.nbytes for weight in sample)
        # What a pass over a small sample would leave in the cache is pushed out by this.
        self._other = np.zeros(_SAMPLE_BYTES if size < _SAMPLE_BYTES else 0, np.uint8)

    def pack(self, layout: Layout) -> None:
        self._layout = layout
        self._packed = [np.empty(layout.shape(*weight.shape), np.float32) for weight in self._rows]
        for weight, packed in zip(self._rows, self._packed, strict=True):
            layout.pack(weight, packed)

    def time(self, width: int, kernel: Kernel, fastest: float) -> float | None:
        """Seconds per product, the second slowest pass; None for a kernel that is out.

        It is out when its products are wrong or it is not among the fastest; the simplest kernel
        stays in, so that every layout and width has one. The slow side counts, because a kernel
        must be fast on a busy machine too.
        """
        x = self._random.standard_normal((width, self._rows[0].shape[1]), dtype=np.float32)
        is_plain = kernel == Kernel(1)
        # One product tells the hopeless ones apart: threads that wait for each other on a busy
        # machine can take a hundred times longer, and a whole pass of that is never worth it.
        if not is_plain and (self.is_late() or not self._is_promising(x, kernel, fastest)):
            return None
        if not self._is_right(x, kernel):
            return None
        first = self._pass(x, kernel, self._packed)
        if first > _HOPELESS * fastest or self.is_late():
            return first if is_plain else None
        more = (self._pass(x, kernel, self._packed) for _ in range(_REPEATS - 1))
        return sorted([first, *more])[-2]

    def _is_promising(self, x: Floats, kernel: Kernel, fastest: float) -> bool:
        for _ in range(_GLANCES):
            glance = self._pass(x, kernel, self._packed[:1])
            if glance <= _HOPELESS * fastest:
                return True
            if glance > _GIVE_UP * fastest:
                return False
        return False

    def is_late(self) -> bool:
        return time.perf_counter() > self._deadline

    def _pass(self, x: Floats, kernel: Kernel, weights: list[Floats]) -> float:
        if len(weights) > 1:
            self._other.sum(dtype=np.uint8)
        begin = time.perf_counter()
        for packed in weights:
            self._multiplier.multiply(x, packed, self._layout, kernel)
        return (time.perf_counter() - begin) / len(weights)

    def _is_right(self, x: Floats, kernel: Kernel) -> bool:
        weight, packed = self._rows[0], self._packed[0]
        found = self._multiplier.multiply(x, packed, self._layout, kernel)
        self._multiplier.blas.use(1)
        expected = x @ weight.T
        scale = float(np.abs(expected).max()) or 1.0
        if float(np.abs(found - expected).max()) > _TOLERANCE * scale:
            return False
        return x.shape[0] > self._slots or self._is_row_independent(x, found, kernel)

    def _is_row_independent(self, x: Floats, found: Floats, kernel: Kernel) -> bool:
        for shift in range(1, x.shape[0]):
            moved = np.roll(x, shift, axis=0)
            moved[:shift] *= np.float32(0.5)
            again = self._multiplier.multiply(moved, self._packed[0], self._layout, kernel)
            if not np.array_equal(again[shift:], found[: x.shape[0] - shift]):
                return False
        return True
