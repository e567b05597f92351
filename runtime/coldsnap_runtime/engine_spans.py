"""Spans that an engine tells in its answers: what it did inside one of our calls, and how long.

The answer to any call may hold::

    "spans": [{"name": "payload", "start": 8812.41, "seconds": 0.55, "parent": "wake",
               "attributes": {"bytes": 17080000000, "provider": "native"}}, ...]

`start` is on CLOCK_BOOTTIME, the same for every process of a host; `parent`, if there is one,
names an earlier span of the same answer. What does not look like this is left out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coldsnap_runtime.timing import Timing

_MOST = 64
_MOST_ATTRIBUTES = 24
_LONGEST_NAME = 64


def take_spans(answer: Any, timing: Timing) -> Any:
    """The answer without its spans; they are added below the span that is open."""
    if not isinstance(answer, dict) or not isinstance(answer.get("spans"), list):
        return answer
    made: dict[str, str] = {}
    for item in answer["spans"][:_MOST]:
        if not isinstance(item, dict):
            continue
        name, start, seconds = (
            item.get("name"),
            _time(item.get("start")),
            _time(item.get("seconds")),
        )
        if not isinstance(name, str) or not name or start is None or seconds is None:
            continue
        parent = made.get(str(item.get("parent")))
        shown = name[:_LONGEST_NAME]
        made[name] = timing.add(shown, start, seconds, parent=parent, attributes=_noted(item))
    return {key: value for key, value in answer.items() if key != "spans"}


def _time(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _noted(item: dict[str, Any]) -> dict[str, str | int | float | bool]:
    found = item.get("attributes")
    if not isinstance(found, dict):
        return {}
    kept = list(found.items())[:_MOST_ATTRIBUTES]
    return {str(k)[:_LONGEST_NAME]: v for k, v in kept if isinstance(v, (str, int, float, bool))}
