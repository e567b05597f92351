"""From logits to a token: greedy, or drawn with temperature, top-k and top-p from a seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coldsnap_reference_engine.kernels import Floats


@dataclass(frozen=True)
class Sampling:
    max_tokens: int = 16
    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0: all."""
    seed: int | None = None
    logprobs: int | None = None
    """How many alternatives to report with each token; None reports nothing."""
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False


@dataclass(frozen=True)
class Token:
    id: int
    logprob: float
    """Natural logarithm of the model's probability, before temperature."""
    top: tuple[tuple[int, float], ...] = ()
    """The most probable (token, logprob), best first."""


class Sampler:
    """Draws the tokens of one sequence; the same seed draws the same."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._random = np.random.Generator(np.random.PCG64(sampling.seed))

    def choose(self, logits: Floats) -> Token:
        """The next token for logits [vocab]."""
        logprobs = _log_softmax(logits.astype(np.float64))
        if self._sampling.temperature == 0.0:
            token = int(np.argmax(logits))
        else:
            token = self._draw(logprobs)
        return Token(token, float(logprobs[token]), self._top(logprobs))

    def _draw(self, logprobs: npt.NDArray[np.float64]) -> int:
        order = np.argsort(-logprobs, kind="stable")
        if self._sampling.top_k:
            order = order[: self._sampling.top_k]
        chances = np.exp(_log_softmax(logprobs[order] / self._sampling.temperature))
        if self._sampling.top_p < 1.0:
            kept = int(np.searchsorted(np.cumsum(chances), self._sampling.top_p)) + 1
            chances = chances[:kept] / chances[:kept].sum()
        at = int(np.searchsorted(np.cumsum(chances), self._random.random(), side="right"))
        return int(order[min(at, len(chances) - 1)])

    def _top(self, logprobs: npt.NDArray[np.float64]) -> tuple[tuple[int, float], ...]:
        count = self._sampling.logprobs
        if not count:
            return ()
        best = np.argsort(-logprobs, kind="stable")[:count]
        return tuple((int(token), float(logprobs[token])) for token in best)


def _log_softmax(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    shifted = values - values.max()
    result: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
    return result
