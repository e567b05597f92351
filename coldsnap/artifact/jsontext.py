"""JSON text and JSON scalars, read strictly: the ground floor of `coldsnap.artifact.decode`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from coldsnap.artifact.errors import ColdSnapError

Reader = Callable[[Any], Any]

MAX_BITS = 128
"""Integers beyond this are described, not printed."""

LONG = 80
"""Characters of foreign text that an error shows at most."""


class RefusedError(Exception):
    """On its way up each container adds its key, so that good values pay nothing for pointers."""

    def __init__(self, reason: str, keys: list[str] | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.keys = keys or []


def parse(data: bytes | str, *, limit: int, what: str, code: str = "artifact.invalid") -> Any:
    """The JSON value in `data` of at most `limit` bytes; `what` names it in errors.

    Raises:
        ColdSnapError: `code`, for too much data, bad UTF-8, bad JSON, duplicate keys, NaN.
    """
    if len(data) > limit:
        raise ColdSnapError(code, f"{what}: larger than the {limit} bytes allowed for it")
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise ColdSnapError(code, f"{what}: nested too deeply") from None
    except RefusedError as refused:
        raise ColdSnapError(code, f"{what}: {refused.reason}") from None
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError, too many digits
        raise ColdSnapError(code, f"{what}: not valid JSON: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise RefusedError(f"duplicate key {key[:LONG]!r}")
            seen.add(key)
    return value


def _no_constant(name: str) -> Any:
    raise RefusedError(f"{name} is not JSON")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise RefusedError(f"must be text, is {type_name(value)}")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise RefusedError("holds half of a surrogate pair") from None
    return value


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise RefusedError(f"must be an integer, is {type_name(value)}")
    return value


def _number(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise RefusedError(f"must be a number, is {type_name(value)}")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise RefusedError("must be a finite number")
    return result


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise RefusedError(f"must be true or false, is {type_name(value)}")
    return value


def _anything(value: Any) -> Any:
    """Any JSON value, with the same promises for its texts and numbers."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list):
        return [_anything(item) for item in value]
    if isinstance(value, dict):
        return {_text(key): _anything(item) for key, item in value.items()}
    return value


def show(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        return "a huge number"
    text = repr(value)
    return text if len(text) <= LONG else text[: LONG - 3] + "..."


def type_name(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    names |= {int: "an integer", float: "a number", type(None): "null"}
    return names.get(type(value), type(value).__name__)


SCALARS: dict[Any, Reader] = {
    str: _text,
    int: _integer,
    float: _number,
    bool: _boolean,
    Any: _anything,
}
