"""Answers of an OpenAI completions endpoint: reading, comparing, seeing the first token."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.decode import Record
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.rules import Prose
from coldsnap_runtime.engine_door import EngineDoor, Watch
from coldsnap_runtime.http_calls import (
    CallFailedError,
    HttpCall,
    open_connection,
    perform,
    send,
    wait_for_data,
)
from coldsnap_runtime.timing import boottime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldsnap_runtime.context import Context

_MAX_LINE = 1 << 20
_SHOWN = 60
_OK = 200


@dataclass(frozen=True)
class Answer(Record):
    """What the engine said to one prompt; `tokens` and `logprobs` position by position."""

    prompt: Prose
    text: Prose
    tokens: tuple[Prose, ...] = ()
    logprobs: tuple[float | None, ...] = ()


def read_answer(prompt: str, value: Any, where: str) -> Answer:
    """From ``choices[0]``.

    Raises:
        ColdSnapError: ``accept.unreadable`` with what is missing.
    """
    try:
        choice = value["choices"][0]
        marks = choice.get("logprobs") or {}
        answer = Answer(
            prompt=prompt,
            text=_typed(choice["text"], str),
            tokens=tuple(_typed(token, str) for token in marks.get("tokens") or ()),
            logprobs=tuple(_number(item) for item in marks.get("token_logprobs") or ()),
        )
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ColdSnapError(
            "accept.unreadable",
            f"the answer is not a completion: {type(error).__name__}: {error}",
            where,
            remedy="name the completions endpoint of the engine in its acceptance",
        ) from None
    if not answer.tokens:
        raise ColdSnapError(
            "accept.unreadable",
            "the answer holds no tokens with log-probabilities",
            where,
            remedy="let the engine serve logprobs on that endpoint",
        )
    return answer


def compare(
    expected: Sequence[Answer], actual: Sequence[Answer], tolerance: float, where: str
) -> None:
    """Raises ColdSnapError ``accept.differs`` at the first difference."""
    if len(expected) != len(actual):
        raise _differs(where, f"{len(actual)} prompts asked, {len(expected)} recorded", ())
    for number, (wanted, found) in enumerate(zip(expected, actual, strict=True)):
        if wanted.prompt != found.prompt:
            both = (f"recorded: {_short(wanted.prompt)}", f"asked: {_short(found.prompt)}")
            raise _differs(where, f"prompt {number} is not the one recorded", both)
        if difference := _difference(wanted, found, tolerance):
            place, details = difference
            label = f"prompt {number} ({_short(found.prompt)}): {place}"
            raise _differs(where, label, details)


def first_token(door: EngineDoor, call: HttpCall, context: Context) -> tuple[str, float]:
    """(method, seconds since boot) of the first token.

    ``stream``: the first event with a token. ``one-token``: an engine that does not stream is asked
    for a single token instead.

    Raises:
        ColdSnapError: ``engine.*``.
    """
    import http.client  # noqa: PLC0415  (start-up time)

    streaming = replace(call, body={**call.body, "stream": True})
    with Watch(door.init) as watch:
        try:
            return "stream", _streamed(door, streaming, watch)
        except (CallFailedError, OSError, http.client.HTTPException):
            if watch.has_ended(wait=0.05):
                raise door.died() from None
    perform(door, replace(call, body={**call.body, "max_tokens": 1}), context)
    return "one-token", boottime()


def _streamed(door: EngineDoor, call: HttpCall, watch: Watch) -> float:
    """When the first token came; the stream is read to its end, so that nothing is left running."""
    deadline = time.monotonic() + call.timeout
    connection = open_connection(door, door.port(call.port), call.timeout)
    try:
        send(connection, door, call)
        wait_for_data(connection, door, watch, deadline)
        answer = connection.getresponse()
        if answer.status != _OK:
            raise CallFailedError(f"HTTP {answer.status}")
        seen = 0.0
        while line := answer.readline(_MAX_LINE):
            if not seen and _has_token(line):
                seen = boottime()
            if time.monotonic() > deadline:
                raise TimeoutError
    finally:
        connection.close()
    if not seen:
        raise CallFailedError("the stream held no token")
    return seen


def _has_token(line: bytes) -> bool:
    """Whether a line of a stream tells of a token; half a character is one without text."""
    if not line.startswith(b"data:"):
        return False
    try:
        choice = json.loads(line[5:])["choices"][0]
        return bool(choice["text"] or (choice.get("logprobs") or {}).get("tokens"))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return False


def _difference(
    wanted: Answer, found: Answer, tolerance: float
) -> tuple[str, tuple[str, ...]] | None:
    for position, (old, new) in enumerate(zip(wanted.tokens, found.tokens, strict=False)):
        if old != new:
            shown = (f"expected token {old!r}", f"actual token {new!r}")
            return f"token {position} differs", shown
        logprobs = _at(wanted, position), _at(found, position)
        if not _is_near(*logprobs, tolerance):
            shown = (f"expected {logprobs[0]!r}", f"actual {logprobs[1]!r}")
            allowed = f" by more than {tolerance:g}" if tolerance else ""
            return f"the log-probability of token {position} ({new!r}) differs{allowed}", shown
    if len(wanted.tokens) != len(found.tokens):
        shown = (f"expected {len(wanted.tokens)} tokens", f"actual {len(found.tokens)} tokens")
        return "the lengths differ", shown
    if wanted.text != found.text:
        shown = (f"expected {_short(wanted.text)}", f"actual {_short(found.text)}")
        return "the texts differ", shown
    return None


def _at(answer: Answer, position: int) -> float | None:
    return answer.logprobs[position] if position < len(answer.logprobs) else None


def _is_near(old: float | None, new: float | None, tolerance: float) -> bool:
    if old is None or new is None:
        return old is new
    return old == new or abs(old - new) <= tolerance


def _differs(where: str, label: str, details: tuple[str, ...]) -> ColdSnapError:
    return ColdSnapError(
        "accept.differs",
        f"the answer differs from the capture's: {label}",
        where,
        details=details,
        cause="the restored process, its model bytes, or the CPU it runs on is not the same",
        remedy="keep the unit that serves; capture again where it shall be restored",
    )


def _typed(value: Any, kind: type[str]) -> str:
    if not isinstance(value, kind):
        raise TypeError(f"text expected, got {type(value).__name__}")
    return value


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"number expected, got {type(value).__name__}")
    return float(value)


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")
