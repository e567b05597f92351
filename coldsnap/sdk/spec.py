"""Typed parameters of steps: pydantic models that are the source of the JSON Schemas."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, WithJsonSchema

_DURATION = re.compile(r"^(\d+(?:\.\d+)?)(ms|s|m|h|d)$")
_DURATION_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)$")
_SIZE_BYTES = {
    "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip


def parse_duration(value: Any) -> float:
    """Seconds from a number of seconds or text such as ``500ms``, ``30s``, ``10m``, ``2h``.

    Raises:
        ValueError: for anything else.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    match = _DURATION.match(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not a duration such as 500ms, 30s, 10m or 2h")
    return float(match[1]) * _DURATION_SECONDS[match[2]]


def parse_size(value: Any) -> int:
    """Bytes from an integer or text such as ``512MiB``, ``2 GB``.

    Raises:
        ValueError: for anything else.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.match(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not a size such as 512MiB or 2GB")
    return int(float(match[1]) * _SIZE_BYTES[match[2]])


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0},
                {"type": "string", "pattern": _DURATION.pattern},
            ],
            "description": "seconds, or text such as 500ms, 30s, 10m, 2h",
        }
    ),
]
Size = Annotated[
    int,
    BeforeValidator(parse_size),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": _SIZE.pattern},
            ],
            "description": "bytes, or text such as 512MiB, 2GB",
        }
    ),
]


class Spec(BaseModel):
    """Base of every typed parameter set: unknown fields are refused, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
