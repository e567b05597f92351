"""Fields of a request that are read by hand; all errors are ``request.invalid``."""

from __future__ import annotations

from typing import Any

from coldsnap.artifact.decode import decode
from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.http_calls import HttpCall

_MOST_CALLS = 64


def known_fields(value: dict[str, Any], names: str, what: str) -> None:
    """Refuse fields that are not among the blank-separated `names`."""
    known = names.split()
    for name in value:
        if name not in known:
            import difflib  # noqa: PLC0415  (only bad requests need it)

            near = difflib.get_close_matches(name[:80], known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise _refused(what, f"unknown field {name[:80]!r}{hint}")


def text_of(value: dict[str, Any], name: str, what: str) -> str:
    found = value.get(name)
    if not isinstance(found, str) or not found or "\0" in found:
        raise _refused(what, f"field {name!r} must be text that is not empty")
    return found


def calls_of(value: dict[str, Any], name: str, what: str) -> tuple[HttpCall, ...]:
    found = value.get(name)
    if not isinstance(found, list) or len(found) > _MOST_CALLS:
        raise _refused(what, f"field {name!r} must be a list of at most {_MOST_CALLS} calls")
    label = f"{what}: {name}"
    return tuple(decode(HttpCall, item, what=label, code="request.invalid") for item in found)


def _refused(what: str, reason: str) -> ColdSnapError:
    return ColdSnapError("request.invalid", f"{what}: {reason}")
