"""What expressions give: JSON data, or an error whose place is found out on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Undefined

from coldsnap.artifact import canonical
from coldsnap.artifact.errors import Source
from coldsnap.plan.problems import shown


class ExpressionError(Exception):
    """What is wrong with an expression, before its place is known."""

    def __init__(self, code: str, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.remedy = code, message, remedy
        self.path: tuple[str | int, ...] = ()
        """Where in the value it was, set on the way out."""
        self.source: Source | None = None
        """Set where the place is known better than by whoever reports it."""


def as_json(value: Any, text: str = "") -> Any:
    """`value` as plain JSON data.

    Raises:
        ExpressionError: if it is undefined or not data.
    """
    if value is None or isinstance(value, (str, int, float, bool)):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, Undefined):
        raise ExpressionError("plan.undefined-value", f"{shown(text)} is not defined")
    if isinstance(value, Mapping):
        return {str(key): as_json(value[key], text) for key in value}
    if isinstance(value, (list, tuple)):
        return [as_json(item, text) for item in value]
    raise ExpressionError("plan.expression", f"{shown(text)} is not a value")


def as_text(value: Any) -> str:
    """How a value reads inside a text."""
    if isinstance(value, str):
        return value
    if value is None:
        raise ExpressionError("plan.expression", "a value inside a text is null")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    return canonical.dumps(value)
