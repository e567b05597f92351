from __future__ import annotations

from typing import Any

import pytest

from coldsnap_reference_engine.api import BadRequest, parse_completion
from coldsnap_reference_engine.tokenizer import train_tokenizer
from coldsnap_reference_engine.vocabulary import word_counts

TOKENIZER = train_tokenizer(word_counts(), 1024)


def parse(body: Any) -> Any:
    return parse_completion(body, TOKENIZER, "m", 100)


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        ([], ""),
        ({}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [1024]}, "prompt"),
        ({"prompt": ["a"] * 17}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": "a", "model": "other"}, "model"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "max_tokens": 1.5}, "max_tokens"),
        ({"prompt": "a", "max_tokens": True}, "max_tokens"),
        ({"prompt": "a", "max_tokens": 100}, "max_tokens"),
        ({"prompt": "a" * 200}, "max_tokens"),
        ({"prompt": "a", "temperature": -1}, "temperature"),
        ({"prompt": "a", "temperature": float("nan")}, "temperature"),
        ({"prompt": "a", "top_p": 0}, "top_p"),
        ({"prompt": "a", "seed": -1}, "seed"),
        ({"prompt": "a", "logprobs": 99}, "logprobs"),
        ({"prompt": "a", "stop": 3}, "stop"),
        ({"prompt": "a", "stop": [""]}, "stop"),
        ({"prompt": "a", "stop": ["x"] * 5}, "stop"),
        ({"prompt": "a", "stream": "yes"}, "stream"),
        ({"prompt": "a", "stream_options": 1}, "stream_options"),
        ({"prompt": "a", "n": 2}, "n"),
        ({"prompt": "a", "echo": True}, "echo"),
        ({"prompt": "a", "logit_bias": {"1": 5}}, "logit_bias"),
    ],
)
def test_bad_request_names_its_field(body: Any, parameter: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse(body)
    assert caught.value.parameter == parameter
    assert str(caught.value)


def test_defaults_are_those_of_openai() -> None:
    request = parse({"prompt": "a"})
    assert request.sampling.max_tokens == 16
    assert request.sampling.temperature == 1.0
    assert request.sampling.logprobs is None
    assert not request.stream


def test_prompt_forms_mean_the_same() -> None:
    tokens = TOKENIZER.encode("some words")
    wanted = (tuple(tokens),)
    for prompt in ("some words", tokens, ["some words"], [tokens]):
        assert parse({"prompt": prompt}).prompts == wanted


def test_neutral_values_of_unsupported_fields_are_taken() -> None:
    parse(
        {"prompt": "a", "n": 1, "best_of": 1, "echo": False, "presence_penalty": 0.0, "user": "u"}
    )


def test_large_seed_is_kept_exactly() -> None:
    assert parse({"prompt": "a", "seed": (1 << 63) - 1}).sampling.seed == (1 << 63) - 1
