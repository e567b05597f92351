"""Plain scalars of the YAML 1.2 core schema: what ``true``, ``12``, ``0x1f``, ``1.5`` mean."""

from __future__ import annotations

import re
from typing import TypeAlias

Scalar: TypeAlias = str | int | float | bool | None

MAX_DIGITS = 400
"""Longer numbers are refused: nothing here counts that far."""

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INT = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INF = re.compile(r"[-+]?(\.inf|\.Inf|\.INF)")
_NAN = frozenset({".nan", ".NaN", ".NAN"})

TAG = "tag:yaml.org,2002:"
STANDARD_TAGS = frozenset(TAG + name for name in ("str", "int", "float", "bool", "null"))


def plain(text: str) -> Scalar:
    """The value of an unquoted scalar.

    Raises:
        ValueError: for a number of more than `MAX_DIGITS` digits, infinity or NaN, which JSON
            (and so schemas, digests and journals) cannot hold.
    """
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    first = text[0]
    if not (first.isdigit() or first in "+-."):
        return text
    return _number(text)


def _number(text: str) -> Scalar:
    if _INF.fullmatch(text) or text in _NAN:
        raise ValueError("infinity and NaN are not allowed")
    if _BASED.fullmatch(text):
        _check_digits(text)
        return int(text, 0)
    if _INT.fullmatch(text):
        _check_digits(text)
        return int(text)
    if _FLOAT.fullmatch(text):
        _check_digits(text)
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise ValueError("the number is too large")
        return value
    return text


def _check_digits(text: str) -> None:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")


def tagged(tag: str, text: str) -> Scalar:
    """The value of a scalar with a standard tag, such as ``!!str 12``.

    Raises:
        ValueError: if the text is not of that type.
    """
    if tag == TAG + "str":
        return text
    value = plain(text)
    kinds: dict[str, type] = {"int": int, "float": float, "bool": bool, "null": type(None)}
    kind = kinds[tag.removeprefix(TAG)]
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{text!r} is not of type {tag.removeprefix(TAG)}")
    return value
