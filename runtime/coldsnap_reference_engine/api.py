"""The OpenAI completions API: a request is parsed once, an answer is a JSON value."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coldsnap_reference_engine.sampling import Sampling, Token
from coldsnap_reference_engine.text import TextStream
from coldsnap_reference_engine.tokenizer import Tokenizer

MAX_PROMPTS = 16
_MAX_STOPS = 4
_MAX_LOGPROBS = 20
_DEFAULT_TOKENS = 16
# What clients send with its neutral value; anything else would be silently ignored, so refused.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
}


class BadRequest(Exception):  # noqa: N818 - named after what HTTP calls it
    """The client's mistake.

    Attributes:
        parameter: the field at fault; empty for the request as a whole.
        status: HTTP status.
    """

    def __init__(self, message: str, parameter: str = "", status: int = 400) -> None:
        super().__init__(message)
        self.parameter = parameter
        self.status = status


@dataclass(frozen=True)
class CompletionRequest:
    prompts: tuple[tuple[int, ...], ...]
    sampling: Sampling
    stream: bool
    include_usage: bool


def parse_completion(
    body: Any, tokenizer: Tokenizer, model: str, longest: int
) -> CompletionRequest:
    """Check everything before anything is computed; `longest` bounds prompt and answer together.

    Raises:
        BadRequest: with the parameter at fault.
    """
    if not isinstance(body, dict):
        raise BadRequest("the request must be a JSON object")
    if body.get("model", model) != model:
        message = f"the model {body['model']!r} does not exist; this engine serves {model!r}"
        raise BadRequest(message, "model", 404)
    for name, accepted in _NEUTRAL.items():
        if body.get(name) is not None and body[name] not in accepted:
            raise BadRequest(f"{name} is not supported", name)
    prompts = _prompts(body.get("prompt"), tokenizer)
    sampling = _sampling(body)
    for prompt in prompts:
        if len(prompt) + sampling.max_tokens > longest:
            raise BadRequest(
                f"{len(prompt)} prompt tokens and {sampling.max_tokens} to generate are more than"
                f" the {longest} tokens that the model can hold",
                "max_tokens",
            )
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise BadRequest("stream_options must be an object", "stream_options")
    return CompletionRequest(
        prompts, sampling, _flag(body, "stream"), bool(options.get("include_usage"))
    )


def _prompts(value: Any, tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    if isinstance(value, str) or _is_tokens(value):
        value = [value]
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_PROMPTS:
        message = f"prompt must be text, token ids, or a list of 1 to {MAX_PROMPTS} of them"
        raise BadRequest(message, "prompt")
    prompts = tuple(_prompt(item, tokenizer) for item in value)
    if not all(prompts):
        raise BadRequest("prompt must not be empty", "prompt")
    return prompts


def _prompt(value: Any, tokenizer: Tokenizer) -> tuple[int, ...]:
    if isinstance(value, str):
        return tuple(tokenizer.encode(value))
    if not _is_tokens(value):
        raise BadRequest("a prompt must be text or a list of token ids", "prompt")
    if any(not 0 <= token < tokenizer.size for token in value):
        raise BadRequest(f"token ids go from 0 to {tokenizer.size - 1}", "prompt")
    return tuple(value)


def _is_tokens(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, int) and not isinstance(item, bool) for item in value)
    )


def _sampling(body: dict[str, Any]) -> Sampling:
    logprobs = body.get("logprobs")
    return Sampling(
        max_tokens=int(_number(body, "max_tokens", _DEFAULT_TOKENS, 1, 1 << 20, whole=True)),
        temperature=_number(body, "temperature", 1.0, 0.0, 2.0),
        top_p=_number(body, "top_p", 1.0, 1e-6, 1.0),
        top_k=max(0, int(_number(body, "top_k", 0, -1, 1 << 20, whole=True))),
        seed=None
        if body.get("seed") is None
        else int(_number(body, "seed", 0, 0, (1 << 63) - 1, whole=True)),
        logprobs=None
        if logprobs is None or logprobs is False
        else int(_number(body, "logprobs", 0, 0, _MAX_LOGPROBS, whole=True)),
        stop=_stops(body.get("stop")),
        ignore_eos=_flag(body, "ignore_eos"),
    )


def _number(
    body: dict[str, Any],
    name: str,
    default: float,
    least: float,
    most: float,
    *,
    whole: bool = False,
) -> float:
    value = body.get(name)
    if value is None:
        return default
    kinds = (int,) if whole else (int, float)
    is_number = isinstance(value, kinds) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not least <= value <= most:
        kind = "whole number" if whole else "number"
        raise BadRequest(f"{name} must be a {kind} from {least:g} to {most:g}", name)
    # A large seed must not pass through a float.
    return value if whole else float(value)


def _flag(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise BadRequest(f"{name} must be true or false", name)
    return bool(value)


def _stops(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else (value or [])
    is_texts = isinstance(stops, list) and all(isinstance(s, str) and s for s in stops)
    if not is_texts or len(stops) > _MAX_STOPS:
        raise BadRequest(f"stop must be text or a list of up to {_MAX_STOPS} texts", "stop")
    return tuple(stops)


@dataclass
class Choice:
    """One answer as it grows; takes tokens, gives text and log-probabilities."""

    index: int
    tokenizer: Tokenizer
    sampling: Sampling
    reason: str | None = None
    tokens: list[Token] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.text = TextStream(self.tokenizer, self.sampling.stop)

    def feed(self, token: Token) -> str:
        """Text that became certain; sets `reason` at a stop string."""
        self.offsets.append(self.text.length)
        self.tokens.append(token)
        piece = self.text.feed(token.id)
        if self.text.is_stopped:
            self.reason = "stop"
        return piece

    def to_json(self, text: str, since: int = 0) -> dict[str, Any]:
        """The choice with `text` and the log-probabilities of the tokens from `since` on."""
        return {
            "index": self.index,
            "text": text,
            "logprobs": None if self.sampling.logprobs is None else self._logprobs(since),
            "finish_reason": self.reason,
        }

    def _logprobs(self, since: int) -> dict[str, Any]:
        name = self.tokenizer.name
        tokens = self.tokens[since:]
        return {
            "tokens": [name(token.id) for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [
                {name(other): logprob for other, logprob in token.top} for token in tokens
            ],
            "text_offset": self.offsets[since:],
        }


class Answer:
    """What all parts of one completion share."""

    def __init__(self, model: str) -> None:
        self._head = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }

    def to_json(
        self, choices: list[dict[str, Any]], usage: dict[str, int] | None = None
    ) -> dict[str, Any]:
        value = {**self._head, "choices": choices}
        return value if usage is None else {**value, "usage": usage}


def usage_of(request: CompletionRequest, choices: list[Choice]) -> dict[str, int]:
    prompt = sum(len(tokens) for tokens in request.prompts)
    answer = sum(len(choice.tokens) for choice in choices)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
    }
