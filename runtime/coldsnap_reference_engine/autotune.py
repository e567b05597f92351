"""Finding the fastest execution plan by measuring real candidates on the model's own weights.

For every kind of matrix: each layout, each width (tokens computed together), each kernel. The
winner has the best geometric mean of a lone sequence's speed and of four sequences at once that
read as much as they write. A plan is kept only if the whole model decodes faster with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from coldsnap_reference_engine.candidates import Timings, search
from coldsnap_reference_engine.kernels import Layout
from coldsnap_reference_engine.plan import ExecutionPlan
from coldsnap_reference_engine.transformer import Span, Transformer
from coldsnap_reference_engine.weights import KINDS, Kind

DECODE_WIDTHS = (1, 2, 4)
PREFILL_WIDTHS = (8, 32)
_TOGETHER = 4
_STEPS = 6
_ROUNDS = 3
_TRIALS = 2
_ROUND_SECONDS = 0.3
_PROMPT = 64


@dataclass(frozen=True)
class Measured:
    """What tuning found."""

    speeds: Mapping[tuple[str, str], float]
    """(plan, load) -> tokens per second; plans ``untuned`` and ``tuned``; loads ``1`` and ``4``
    (sequences decoding at once) and ``prompt``."""
    candidates: int
    """Combinations of layout, width and kernel that were timed."""
    seconds: float
    is_kept: bool
    """False when the tuned plan was not faster and the untuned one stayed."""

    @property
    def summary(self) -> str:
        pairs = (
            f"{load}: {self.speeds['untuned', load]:.0f} -> {self.speeds['tuned', load]:.0f}"
            for load in ("1", str(_TOGETHER), "prompt")
        )
        kept = "kept" if self.is_kept else "not kept, it is not faster"
        return f"{self.candidates} candidates, tokens/s by load {', '.join(pairs)}; plan {kept}"

    def to_json(self) -> dict[str, Any]:
        return {
            "tokens_per_second": {
                f"{plan}/{load}": round(speed, 1) for (plan, load), speed in self.speeds.items()
            },
            "candidates": self.candidates,
            "seconds": round(self.seconds, 3),
            "is_kept": self.is_kept,
        }


def tune(
    transformer: Transformer, seconds: float, agree: Callable[[int], int] | None = None
) -> Measured:
    """Give `transformer` the fastest plan found, and its weights that plan's layouts.

    Args:
        transformer: under the untuned plan.
        seconds: bound of the search; a quiet machine with a small model needs less.
        agree: gives the decoding width that all ranks use, for this rank's proposal; then the
            plan is kept in any case.
    """
    begin = time.perf_counter()
    before = transformer.plan
    speeds = {("untuned", load): speed for load, speed in _speeds(transformer).items()}
    widths = (*(w for w in DECODE_WIDTHS if w <= transformer.cache.slots), *PREFILL_WIDTHS)
    timings = {kind: search(transformer, kind, widths, seconds / len(KINDS)) for kind in KINDS}
    counts = {kind: len(transformer.weights.of_kind(kind)) for kind in KINDS}
    _use(transformer, _choose(timings, counts, transformer.cache.slots, agree))
    together = str(_TOGETHER)
    for _ in range(_TRIALS):
        speeds |= {("tuned", load): speed for load, speed in _speeds(transformer).items()}
        is_faster = speeds["tuned", together] > speeds["untuned", together]
        is_kept = is_faster or agree is not None
        if is_kept:
            break
    else:
        _use(transformer, before)
    transformer.cache.region.drop()
    candidates = sum(len(found.seconds) for found in timings.values())
    return Measured(speeds, candidates, time.perf_counter() - begin, is_kept)


def _use(transformer: Transformer, plan: ExecutionPlan) -> None:
    for kind in KINDS:
        transformer.weights.repack(kind, plan.layouts[kind])
    transformer.plan = plan


def _choose(
    timings: Mapping[Kind, Timings],
    counts: Mapping[Kind, int],
    slots: int,
    agree: Callable[[int], int] | None,
) -> ExecutionPlan:
    decode_widths = [
        width
        for width in DECODE_WIDTHS
        if width <= slots and all(timings[kind].layouts(_widths(width)) for kind in KINDS)
    ]
    layouts = {
        width: {kind: _best_layout(timings[kind], width) for kind in KINDS}
        for width in decode_widths
    }

    def step(width: int) -> float:
        """Seconds of one decoding step's products."""
        return sum(counts[k] * timings[k].best(layouts[width][k], width)[0] for k in KINDS)

    def cost(width: int) -> float:
        return sum(counts[k] * _cost(timings[k], layouts[width][k], width) for k in KINDS)

    width = min(decode_widths, key=lambda width: step(width) * cost(width))
    if agree is not None:
        width = agree(width)
    kernels = {
        (kind, other): timings[kind].best(layouts[width][kind], other)[1]
        for kind in KINDS
        for other in _widths(width)
    }
    return ExecutionPlan(width, PREFILL_WIDTHS, layouts[width], kernels)


def _best_layout(timings: Timings, width: int) -> Layout:
    layouts = timings.layouts(_widths(width))
    return min(layouts, key=lambda layout: _cost(timings, layout, width))


def _widths(decode_width: int) -> tuple[int, ...]:
    return decode_width, *PREFILL_WIDTHS


def _cost(timings: Timings, layout: Layout, width: int) -> float:
    """Seconds for `_TOGETHER` tokens decoded and as many of a prompt."""
    longest = PREFILL_WIDTHS[-1]
    decoding = -(-_TOGETHER // width) * timings.best(layout, width)[0]
    return decoding + _TOGETHER * timings.best(layout, longest)[0] / longest


def _speeds(transformer: Transformer) -> dict[str, float]:
    """Tokens per second of the whole model under its present plan, by load."""
    together = min(_TOGETHER, transformer.cache.slots)
    return {
        "1": _median(lambda: _decode(transformer, 1)),
        str(_TOGETHER): _median(lambda: _decode(transformer, together)),
        "prompt": _median(lambda: _prefill(transformer)),
    }


def _median(measure: Callable[[], float]) -> float:
    """Of a few rounds; fewer where a round takes long."""
    deadline = time.perf_counter() + _ROUNDS * _ROUND_SECONDS
    speeds = [measure()]
    while len(speeds) < _ROUNDS and time.perf_counter() < deadline:
        speeds.append(measure())
    return sorted(speeds)[len(speeds) // 2]


def _decode(transformer: Transformer, sequences: int) -> float:
    width = transformer.plan.decode_width
    begin = time.perf_counter()
    done = 0
    for step in range(_STEPS):
        spans = [Span(slot, step, (1 + slot,)) for slot in range(sequences)]
        for start in range(0, sequences, width):
            batch = spans[start : start + width]
            transformer.decode(batch)
            done += len(batch)
            if time.perf_counter() - begin > _ROUND_SECONDS:
                return done / (time.perf_counter() - begin)
    return done / (time.perf_counter() - begin)


def _prefill(transformer: Transformer) -> float:
    length = min(_PROMPT, transformer.cache.length)
    begin = time.perf_counter()
    at = 0
    while at < length:
        count = min(length - at, transformer.plan.prefill_width(length - at))
        transformer.prefill(Span(0, at, tuple(range(1, 1 + count))), last=False)
        at += count
    return length / (time.perf_counter() - begin)
