"""The Jinja2 sandbox in which expressions run: data only, no calls, results bounded.

Jinja's own sandbox keeps code away from Python's internals; it does not bound work. Here growth
(``"x" * 10**9``, ``10 ** 10 ** 10``) is refused before it happens, and the filters are few and
cannot multiply.
"""

from __future__ import annotations

import json
import math
import posixpath
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import StrictUndefined, Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from coldsnap.artifact import canonical

MAX_TEXT = 1 << 16
"""Characters that one operator or filter may give."""
MAX_ITEMS = 10_000
MAX_BITS = 1024
"""Bits of an integer."""


def lookup(value: Any, key: Any) -> Any:
    """An entry of a map or list; never an attribute of a Python object."""
    try:
        if isinstance(value, Mapping):
            if key in value:
                return value[key]
        elif isinstance(value, (list, tuple)) and type(key) is int:
            return value[key]
    except (TypeError, IndexError):
        pass
    if isinstance(value, Undefined):
        return value
    return StrictUndefined(obj=None, name=str(key), hint=f"there is no {str(key)[:60]!r}")


class Sandbox(ImmutableSandboxedEnvironment):
    """Values only: see the module."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def getattr(self, obj: Any, attribute: str) -> Any:
        return lookup(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        return lookup(obj, argument)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _check_growth(operator, left, right)
        return bounded(super().call_binop(context, operator, left, right))

    def parse_value(self, source: str) -> nodes.Expr:
        """The tree of one expression.

        Raises:
            TemplateSyntaxError: if it is not one.
        """
        parser = Parser(self, source, state="variable")
        tree = parser.parse_expression()
        if not parser.stream.eos:
            parser.fail("there is text after the expression")
        return tree


def _check_growth(operator: str, left: Any, right: Any) -> None:
    for side in (left, right):
        if isinstance(side, int) and side.bit_length() > MAX_BITS:
            raise SecurityError("a number is too large")
    if operator == "%" and isinstance(left, str):
        raise SecurityError("text % values is not allowed")
    if operator == "*":
        for some, times in ((left, right), (right, left)):
            if isinstance(some, (str, list, tuple)) and isinstance(times, int):
                limit = MAX_TEXT if isinstance(some, str) else MAX_ITEMS
                if len(some) * max(times, 0) > limit:
                    raise SecurityError("the result is too large")
    if operator == "**" and not (
        isinstance(right, (int, float))
        and abs(right) <= MAX_BITS
        and isinstance(left, (int, float))
        and math.log2(abs(left) + 1) * abs(right) <= MAX_BITS
    ):
        raise SecurityError("the power is too large")


def bounded(value: Any) -> Any:
    """`value`, unless it is too large.

    Raises:
        SecurityError: if it is.
    """
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise SecurityError("the result is too large")
    if isinstance(value, (list, tuple)) and len(value) > MAX_ITEMS:
        raise SecurityError("the result is too large")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise SecurityError("a number is too large")
    return value


def _default(value: Any, default: Any = "", boolean: Any = False) -> Any:
    return default if isinstance(value, Undefined) or (boolean and not value) else value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise SecurityError("the filter needs text")
    return value


def _items(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value)
    if isinstance(value, (list, tuple, str)):
        return list(value)
    raise SecurityError("the filter needs a list")


def _replace(value: Any, old: Any, new: Any) -> str:
    text = _text(value)
    if text.count(_text(old)) * len(_text(new)) > MAX_TEXT:
        raise SecurityError("the result is too large")
    return text.replace(old, new)


def _join(value: Any, separator: Any = "") -> str:
    items = [item if isinstance(item, str) else json.dumps(item) for item in _items(value)]
    if len(items) * len(_text(separator)) > MAX_TEXT:
        raise SecurityError("the result is too large")
    return str(separator).join(items)


def _number(value: Any, kind: type) -> Any:
    if isinstance(value, str) and len(value) > 40:  # noqa: PLR2004 - longer than any number meant
        raise SecurityError("the text is too long for a number")
    if not isinstance(value, (str, int, float)):
        raise SecurityError("the filter needs a number or text")
    return kind(value)


def _round(value: Any, digits: Any = 0) -> Any:
    result = round(float(_number(value, float)), int(_number(digits, int)))
    return int(result) if not digits else result


def _bool(value: Any) -> bool:
    if isinstance(value, str):
        if value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise SecurityError("the text is neither true nor false")
    return bool(value)


def _length(value: Any) -> int:
    if not isinstance(value, (str, list, tuple, Mapping)):
        raise SecurityError("the filter needs text, a list or a map")
    return len(value)


def _unique(value: Any) -> list[Any]:
    kept: dict[str, Any] = {}
    for item in _items(value):
        kept.setdefault(canonical.dumps(item), item)
    return list(kept.values())


FILTERS: dict[str, Callable[..., Any]] = {
    "abs": lambda value: abs(_number(value, float) if isinstance(value, str) else value),
    "basename": lambda value: posixpath.basename(_text(value)),
    "bool": _bool,
    "count": _length,
    "d": _default,
    "default": _default,
    "dirname": lambda value: posixpath.dirname(_text(value)),
    "first": lambda value: next(iter(_items(value)), StrictUndefined(name="first")),
    "float": lambda value: _number(value, float),
    "int": lambda value: _number(value, int),
    "join": _join,
    "last": lambda value: next(iter(_items(value)[::-1]), StrictUndefined(name="last")),
    "length": _length,
    "list": _items,
    "lower": lambda value: _text(value).lower(),
    "max": lambda value: max(_items(value)),
    "min": lambda value: min(_items(value)),
    "replace": _replace,
    "round": _round,
    "sort": lambda value: sorted(_items(value)),
    "string": lambda value: value if isinstance(value, str) else canonical.dumps(value),
    "sum": lambda value: sum(_items(value)),
    "tojson": canonical.dumps,
    "trim": lambda value: _text(value).strip(),
    "unique": _unique,
    "upper": lambda value: _text(value).upper(),
}
"""What a value can be put through: ``vars.name | lower``."""

_KEPT_TESTS = (
    "defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true",
    "false", "mapping", "sequence", "in", "even", "odd", "divisibleby", "eq", "ne", "lt", "le",
    "gt", "ge", "==", "!=", "<", "<=", ">", ">=", "equalto", "lessthan", "greaterthan",
)  # fmt: skip


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(value: Any, *arguments: Any, **named: Any) -> Any:
        if isinstance(value, Undefined) and function is not _default:
            value._fail_with_undefined_error()  # noqa: SLF001 - what Jinja's own filters do
        return bounded(function(value, *arguments, **named))

    return call


def _environment() -> Sandbox:
    environment = Sandbox(undefined=StrictUndefined, autoescape=False, cache_size=0)
    environment.globals.clear()
    environment.filters = {name: _checked(function) for name, function in FILTERS.items()}
    environment.tests = {name: environment.tests[name] for name in _KEPT_TESTS}
    return environment


ENVIRONMENT = _environment()
TESTS = frozenset(_KEPT_TESTS)
