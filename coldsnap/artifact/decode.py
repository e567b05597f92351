"""JSON to dataclasses, strictly: one place that decides what a document may hold.

Refused, with a JSON pointer to the place: unknown and missing fields, wrong types (true is not 1),
values out of bounds, numbers that are not finite, text that is not Unicode, duplicate keys,
and whatever a record's own `problems` reports. Nothing but ColdSnapError leaves this module.

A document is a dataclass that derives from `Record`::

    @dataclass(frozen=True)
    class Blob(Record):
        path: RelativePath
        bytes: Bytes
        note: Line = ""

    blob = decode(Blob, parse(text, limit=1 << 20), what="blob")
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, Literal, TypeVar, Union

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.jsontext import (
    LONG,
    SCALARS,
    Reader,
    RefusedError,
    parse,
    show,
    type_name,
)
from coldsnap.artifact.rules import Rule


class Record:
    """Base of every dataclass that is read from JSON."""

    # Found by pydantic when the JSON Schemas are generated.
    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "use_attribute_docstrings": True}

    ignores_unknown: ClassVar[bool] = False
    """True for documents of other people's formats, which may hold more than we read."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """(JSON pointer below this record, what is wrong there) for rules between fields."""
        return iter(())

    def to_json(self) -> dict[str, Any]:
        """A JSON object; optional fields that are None are left out."""
        value: dict[str, Any] = encode(self)
        return value


R = TypeVar("R", bound=Record)


def decode(kind: type[R], value: Any, *, what: str, code: str = "artifact.invalid") -> R:
    """`value` (parsed JSON) as `kind`; `what` names the document in errors.

    Raises:
        ColdSnapError: `code`; the message is ``WHAT: POINTER: reason``.
    """
    try:
        record: R = _reader(kind)(value)  # type: ignore[arg-type]
    except RefusedError as refused:
        pointer = "/" + "/".join(_escape(key) for key in reversed(refused.keys))
        raise ColdSnapError(code, f"{what}: {pointer}: {refused.reason}") from None
    except RecursionError:
        raise ColdSnapError(code, f"{what}: nested too deeply") from None
    return record


def encode(value: Any) -> Any:
    """The JSON value of a record; tuples become lists, None fields of records are left out."""
    if isinstance(value, Record):
        fields = dataclasses.fields(value)  # type: ignore[arg-type]
        pairs = ((field.name, getattr(value, field.name)) for field in fields)
        return {name: encode(item) for name, item in pairs if item is not None}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    return value


def recheck(record: R, *, what: str, code: str = "artifact.invalid") -> R:
    """The same record after all checks of a decode; for records built in code.

    Raises:
        ColdSnapError: as `decode`.
    """
    return decode(type(record), encode(record), what=what, code=code)


def _escape(key: str) -> str:
    shown = key[:LONG].encode("unicode_escape", "replace").decode("ascii")
    return shown.replace("~", "~0").replace("/", "~1")


@cache
def _reader(kind: Any) -> Reader:
    """The function that reads values of a type; built once per type."""
    origin = typing.get_origin(kind)
    if origin is not None:
        return _GENERIC[origin](typing.get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Record):
        return _record(kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _literal(tuple(member.value for member in kind), kind)
    return SCALARS[kind]


def _ruled(arguments: tuple[Any, ...]) -> Reader:
    read = _reader(arguments[0])
    rules = [rule for rule in arguments[1:] if isinstance(rule, Rule)]

    def ruled(value: Any) -> Any:
        result = read(value)
        for rule in rules:
            if reason := rule.refuse(result):
                raise RefusedError(reason)
        return result

    return ruled


def _optional(kinds: tuple[Any, ...]) -> Reader:
    (kind,) = (kind for kind in kinds if kind is not type(None))
    read = _reader(kind)
    return lambda value: None if value is None else read(value)


def _literal(allowed: tuple[Any, ...], make: Reader = lambda value: value) -> Reader:
    shown = ", ".join(repr(item) for item in allowed)

    def literal(value: Any) -> Any:
        if not isinstance(value, (str, int)):
            raise RefusedError(f"must be one of {shown}")
        for item in allowed:
            if type(item) is type(value) and item == value:
                return make(value)
        raise RefusedError(f"must be one of {shown}, is {show(value)}")

    return literal


def _array(arguments: tuple[Any, ...]) -> Reader:
    read = _reader(arguments[0])

    def array(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise RefusedError(f"must be a list, is {type_name(value)}")
        items: list[Any] = []
        try:
            for item in value:
                items.append(read(item))  # noqa: PERF401 - the index is needed on failure
        except RefusedError as refused:
            refused.keys.append(str(len(items)))
            raise
        return tuple(items)

    return array


def _object(arguments: tuple[Any, ...]) -> Reader:
    read_key, read = _reader(arguments[0]), _reader(arguments[1])

    def mapping(value: Any) -> dict[str, Any]:
        _require_object(value)
        items: dict[str, Any] = {}
        for key, item in value.items():
            try:
                items[read_key(key)] = read(item)
            except RefusedError as refused:
                refused.keys.append(key)
                raise
        return items

    return mapping


def _record(kind: type[Record]) -> Reader:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    readers = {field.name: _reader(hints[field.name]) for field in fields}
    missing = dataclasses.MISSING
    required = [f.name for f in fields if f.default is missing and f.default_factory is missing]

    def record(value: Any) -> Record:
        _require_object(value)
        arguments: dict[str, Any] = {}
        for key, item in value.items():
            read = readers.get(key)
            if read is None:
                if kind.ignores_unknown:
                    continue
                raise RefusedError(_unknown(key, readers))
            try:
                arguments[key] = read(item)
            except RefusedError as refused:
                refused.keys.append(key)
                raise
        for name in required:
            if name not in arguments:
                raise RefusedError(f"field {name!r} is missing")
        result = kind(**arguments)
        for pointer, reason in result.problems():
            raise RefusedError(reason, [key for key in reversed(pointer.split("/")) if key])
        return result

    return record


def _unknown(key: str, known: Mapping[str, Any]) -> str:
    import difflib  # noqa: PLC0415  (only bad documents need it)

    near = difflib.get_close_matches(key[:LONG], known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown field {key[:LONG]!r}{hint}"


def _require_object(value: Any) -> None:
    if not isinstance(value, dict):
        raise RefusedError(f"must be an object, is {type_name(value)}")


_GENERIC: dict[Any, Callable[[tuple[Any, ...]], Reader]] = {
    typing.Annotated: _ruled,
    Union: _optional,
    types.UnionType: _optional,
    Literal: _literal,
    tuple: _array,
    dict: _object,
    Mapping: _object,
}

__all__ = ["Record", "decode", "encode", "parse", "recheck"]
