"""An execution plan: layout of each kind of weight, kernel for each width, tokens per step.

It is found by `autotune`, kept in memory only, and is what a snapshot saves a restore from
finding again. The same plan over the same weights gives the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coldsnap.artifact.canonical import digest
from coldsnap_reference_engine.kernels import Kernel, Layout
from coldsnap_reference_engine.weights import CHECKPOINT_LAYOUTS, KINDS, Kind


@dataclass(frozen=True)
class ExecutionPlan:
    decode_width: int
    """Sequences per decoding step; a step with fewer is filled up, so that an answer does not
    depend on who else asks."""
    prefill_widths: tuple[int, ...]
    """Tokens per prefill step, ascending."""
    layouts: Mapping[Kind, Layout]
    kernels: Mapping[tuple[Kind, int], Kernel] = field(default_factory=dict)
    """(kind, width) -> kernel; absent means `fallback`."""
    fallback: Kernel = field(default_factory=Kernel)

    def kernel(self, kind: Kind, width: int) -> Kernel:
        return self.kernels.get((kind, width), self.fallback)

    def prefill_width(self, remaining: int) -> int:
        """Width of the next step of a prompt with `remaining` tokens left."""
        for width in self.prefill_widths:
            if remaining <= width:
                return width
        return self.prefill_widths[-1]

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(sorted({self.decode_width, *self.prefill_widths}))

    def to_json(self) -> dict[str, Any]:
        return {
            "decode_width": self.decode_width,
            "prefill_widths": list(self.prefill_widths),
            "layouts": {kind: self.layouts[kind].name for kind in KINDS},
            "kernels": {
                f"{kind}/{width}": self.kernel(kind, width).name
                for kind in KINDS
                for width in self.widths
            },
        }

    @property
    def digest(self) -> str:
        return digest(self.to_json())


def untuned(blas_threads: int) -> ExecutionPlan:
    """What one writes without measuring.

    Weights as they come, one sequence at a time, prompts in large pieces, the BLAS library's own
    number of threads.
    """
    return ExecutionPlan(1, (32,), CHECKPOINT_LAYOUTS, fallback=Kernel(blas_threads))
