"""Fields of one JSON object of a request, each checked as it is read."""

from __future__ import annotations

import re
from typing import Any

from coldsnap.artifact.errors import ColdSnapError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MAX_SECONDS = 1e6


class RequestReader:
    """Every method raises ColdSnapError ``request.invalid``, naming the field."""

    def __init__(self, value: Any, what: str) -> None:
        self._what = what
        if not isinstance(value, dict):
            raise self.refused("", "must be an object")
        self._value: dict[str, Any] = value

    def refused(self, field_name: str, reason: str) -> ColdSnapError:
        place = f"{self._what}.{field_name}" if field_name else self._what
        return ColdSnapError("request.invalid", f"{place} {reason}")

    def string(self, key: str, default: str = "") -> str:
        value = self._value.get(key)
        if value is None:
            return default
        if not isinstance(value, str) or "\0" in value:
            raise self.refused(key, "must be text")
        return value

    def name(self, key: str, default: str = "") -> str:
        value = self.string(key, default)
        if not _NAME.fullmatch(value):
            raise self.refused(key, f"must be a name of letters, digits and ._-, not {value!r}")
        return value

    def digest(self, key: str) -> str:
        value = self.string(key)
        if not _DIGEST.fullmatch(value):
            raise self.refused(key, f"must be sha256:<64 hex>, not {value!r}")
        return value

    def path(self, key: str, default: str = "") -> str:
        return self.checked_path(key, self.string(key, default))

    def checked_path(self, key: str, value: str) -> str:
        if not value.startswith("/") or ".." in value.split("/"):
            raise self.refused(key, f"must be an absolute path without .., not {value!r}")
        return value

    def choice(self, key: str, allowed: tuple[str, ...]) -> str:
        value = self.string(key, allowed[0])
        if value not in allowed:
            raise self.refused(key, f"must be one of {', '.join(allowed)}, not {value!r}")
        return value

    def integer(self, key: str, default: int, least: int, most: int) -> int:
        value = self._value.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.refused(key, f"must be a whole number from {least} to {most}")
        return value

    def boolean(self, key: str) -> bool:
        value = self._value.get(key, False)
        if not isinstance(value, bool):
            raise self.refused(key, "must be true or false")
        return value

    def optional_integer(self, key: str) -> int | None:
        return None if self._value.get(key) is None else self.integer(key, 0, 1, 1 << 53)

    def seconds(self, key: str, default: float) -> float:
        value = self._value.get(key, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not 0 <= value < _MAX_SECONDS
        ):
            raise self.refused(key, "must be seconds")
        return float(value)

    def strings(self, key: str, at_least: int = 0) -> tuple[str, ...]:
        value = self._value.get(key) or []
        is_text = isinstance(value, list) and all(
            isinstance(item, str) and "\0" not in item for item in value
        )
        if not is_text or len(value) < at_least:
            raise self.refused(key, f"must be a list of at least {at_least} texts")
        return tuple(value)

    def indices(self, key: str) -> tuple[int, ...]:
        value = self._value.get(key) or []
        if not isinstance(value, list) or not all(type(i) is int and i >= 0 for i in value):
            raise self.refused(key, "must be a list of whole numbers")
        return tuple(value)

    def names(self, key: str) -> tuple[str, ...]:
        values = self.strings(key)
        for value in values:
            if not _NAME.fullmatch(value):
                raise self.refused(key, f"holds {value!r}, which is not a name")
        return values

    def object(self, key: str) -> dict[str, Any]:
        value = self._value.get(key)
        if not isinstance(value, dict):
            raise self.refused(key, "must be an object")
        return value

    def objects(self, key: str) -> list[dict[str, Any]]:
        value = self._value.get(key) or []
        if not isinstance(value, list):
            raise self.refused(key, "must be a list")
        return value

    def environment(self, key: str) -> dict[str, str]:
        value = self._value.get(key) or {}
        if not isinstance(value, dict):
            raise self.refused(key, "must be an object")
        for name, text in value.items():
            if not _ENV_NAME.fullmatch(name) or not isinstance(text, str) or "\0" in text:
                raise self.refused(key, f"has a bad variable {name!r}")
        return value
