"""Prefetched answers of one host, kept until something changes it."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.sdk.host import FactRequest


class Answers:
    """Thread-safe; values are what the child answered: ``{"value"}`` or ``{"error"}``."""

    def __init__(self) -> None:
        self._kept: dict[str, Mapping[str, Any]] = {}
        self._lock = threading.Lock()

    def forget(self) -> None:
        with self._lock:
            self._kept = {}

    def keep(self, keys: Sequence[str], answers: Sequence[Mapping[str, Any]]) -> None:
        with self._lock:
            self._kept.update(zip(keys, answers, strict=True))

    def find(self, keys: Sequence[str]) -> list[Mapping[str, Any] | None]:
        with self._lock:
            return [self._kept.get(key) for key in keys]


def key_of(request: FactRequest) -> str:
    """Equal for equal questions."""
    return f"{request.fact} {json.dumps(request.args, sort_keys=True, default=dict)}"


def value_of(answer: Mapping[str, Any]) -> Any:
    """The value of an answer, or its error raised (a fresh one each time)."""
    if "error" in answer:
        raise ColdSnapError.from_json(answer["error"])
    return answer["value"]


def distinct(requests: Sequence[FactRequest]) -> dict[str, FactRequest]:
    """Requests by key, each question once, in order."""
    found: dict[str, FactRequest] = {}
    for request in requests:
        found.setdefault(key_of(request), request)
    return found
