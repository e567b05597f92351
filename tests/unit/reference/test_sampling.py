from __future__ import annotations

import math

import numpy as np
import pytest

from coldsnap_reference_engine.sampling import Sampler, Sampling

LOGITS = np.log(np.array([0.5, 0.25, 0.15, 0.1], np.float32))


def draw(count: int, **options: object) -> list[int]:
    sampler = Sampler(Sampling(**options))
    return [sampler.choose(LOGITS).id for _ in range(count)]


def test_greedy_takes_the_most_probable() -> None:
    token = Sampler(Sampling(temperature=0, logprobs=2)).choose(LOGITS)
    assert token.id == 0
    assert token.logprob == pytest.approx(math.log(0.5), abs=1e-6)
    assert [other for other, _ in token.top] == [0, 1]


def test_same_seed_draws_the_same() -> None:
    assert draw(50, seed=7) == draw(50, seed=7)
    assert draw(50, seed=7) != draw(50, seed=8)


def test_frequencies_follow_the_probabilities() -> None:
    tokens = draw(4000, seed=1)
    shares = np.bincount(tokens, minlength=4) / len(tokens)
    np.testing.assert_allclose(shares, [0.5, 0.25, 0.15, 0.1], atol=0.03)


def test_low_temperature_sharpens() -> None:
    assert draw(500, seed=1, temperature=0.2).count(0) > 450


def test_top_k_and_top_p_exclude() -> None:
    assert set(draw(300, seed=1, top_k=2)) == {0, 1}
    assert set(draw(300, seed=1, top_p=0.6)) == {0, 1}
    assert set(draw(300, seed=1, top_p=0.1)) == {0}
