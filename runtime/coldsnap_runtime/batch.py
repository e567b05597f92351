"""The verb ``batch``: several reading verbs in one start of the interpreter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from coldsnap.artifact.decode import Record, decode
from coldsnap.artifact.rules import Count, Line
from coldsnap_runtime.main import answer_of

if TYPE_CHECKING:
    from coldsnap_runtime.context import Context


@dataclass(frozen=True)
class Question(Record):
    verb: Line
    request: dict[str, Any]


@dataclass(frozen=True)
class BatchRequest(Record):
    requests: Annotated[tuple[Question, ...], Count(1, 4096)]


def batch(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """``{answers: [result line, ...]}``, one for each of the requests; one's error is its own.

    Raises:
        ColdSnapError: ``request.invalid``.
    """
    asked = decode(BatchRequest, value, what="batch", code="request.invalid")
    return {"answers": [answer_of(item.verb, item.request, context) for item in asked.requests]}
