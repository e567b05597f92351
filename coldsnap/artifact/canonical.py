"""Canonical JSON and its digest: the one text of a JSON value, equal on every machine.

Recursively sorted keys, no white space, everything outside ASCII escaped, integers exact,
floats as Python prints them, NaN and infinities refused. A digest is the SHA-256 of that text.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from coldsnap.artifact.errors import ColdSnapError

MAX_DEPTH = 128
"""Nesting beyond this is refused, so that no input can exhaust the interpreter's stack."""


def dumps(value: Any) -> str:
    """Canonical JSON of a value made of dict, list, tuple, str, int, float, bool and None.

    Raises:
        ColdSnapError: ``canonical.invalid`` for NaN, infinities, keys that are not text, other
            types, cycles and nesting beyond `MAX_DEPTH`; names the JSON pointer.
    """
    plain = _plain(value, "", 0)
    try:
        return json.dumps(
            plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
        )
    except ValueError as error:  # an integer of more digits than Python converts
        raise _invalid("", str(error)) from None


def digest(value: Any) -> str:
    """``sha256:<64 lower hex>`` of the canonical JSON of `value`.

    Raises:
        ColdSnapError: as `dumps`.
    """
    return "sha256:" + hashlib.sha256(dumps(value).encode("ascii")).hexdigest()


def _plain(value: Any, pointer: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise _invalid(pointer, f"nested deeper than {MAX_DEPTH}")
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _invalid(pointer, f"{value} has no JSON form")
        return value
    if isinstance(value, Mapping):
        return {_key(key, pointer): _child(value[key], pointer, key, depth) for key in value}
    if isinstance(value, (list, tuple)):
        return [_child(item, pointer, index, depth) for index, item in enumerate(value)]
    raise _invalid(pointer, f"{type(value).__name__} has no JSON form")


def _child(value: Any, pointer: str, key: object, depth: int) -> Any:
    # Scalars need no pointer of their own, and there can be a million of them.
    if value is None or isinstance(value, (str, bool, int)):
        return value
    return _plain(value, f"{pointer}/{key}", depth + 1)


def _key(key: object, pointer: str) -> str:
    if not isinstance(key, str):
        raise _invalid(pointer, f"key {key!r} is not text")
    return key


def _invalid(pointer: str, reason: str) -> ColdSnapError:
    return ColdSnapError("canonical.invalid", f"no canonical JSON for {pointer or '/'}: {reason}")
