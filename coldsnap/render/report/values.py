"""Values that came from hosts, read with care: what does not fit is None or left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def maps(value: Any) -> list[Mapping[str, Any]]:
    return [v for v in value if isinstance(v, Mapping)] if isinstance(value, list) else []


def number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value)


def text(value: Any) -> str:
    return str(value)[:512] if value is not None else ""


def attributes(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        return {}
    return {text(name): text(given) for name, given in list(value.items())[:32]}
