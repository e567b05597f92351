"""A `Change` as JSON, for journals and saved plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coldsnap.sdk.change import Action, Change, Row


def change_json(change: Change) -> dict[str, Any]:
    return {
        "action": change.action.value,
        "summary": change.summary,
        "rows": [[row.action.value, row.noun, row.detail] for row in change.rows],
        "pauses_serving": change.pauses_serving,
        "pause_seconds": change.pause_seconds,
        "data": dict(change.data),
    }


def change_from(value: Mapping[str, Any]) -> Change:
    """The change back.

    Raises:
        KeyError, ValueError: when `value` was not made by `change_json`.
    """
    return Change(
        Action(value["action"]),
        str(value["summary"]),
        tuple(Row(Action(action), noun, detail) for action, noun, detail in value["rows"]),
        bool(value["pauses_serving"]),
        value["pause_seconds"],
        dict(value["data"]),
    )
