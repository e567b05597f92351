"""JSON lines: what is read from stdin, what is written to stdout.

Kept free of heavy imports: polling verbs must start within milliseconds.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coldsnap.artifact.errors import ColdSnapError

MAX_REQUEST = 16 << 20
"""Bytes of a request, and of a result."""


def read_request(descriptor: int = 0) -> dict[str, Any]:
    """The request on stdin; an empty or interactive stdin is an empty request.

    Raises:
        ColdSnapError: ``request.too-large``, ``request.invalid``.
    """
    if os.isatty(descriptor):
        return {}
    data = _read_all(descriptor)
    if not data.strip():
        return {}
    try:
        value = json.loads(
            data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise _refused("request.invalid", f"the request is not strict JSON: {reason}") from None
    if not isinstance(value, dict):
        raise _refused("request.invalid", "the request must be a JSON object")
    return value


def write_line(value: dict[str, Any]) -> None:
    """One line to stdout, at once."""
    sys.stdout.write(json.dumps(value, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def success(result: dict[str, Any]) -> dict[str, Any]:
    return {"event": "result", "ok": True, "result": result}


def failure(error: ColdSnapError) -> dict[str, Any]:
    return {"event": "result", "ok": False, "error": error.to_json()}


def _read_all(descriptor: int) -> bytes:
    blocks: list[bytes] = []
    size = 0
    while block := os.read(descriptor, 1 << 20):
        size += len(block)
        if size > MAX_REQUEST:
            message = f"the request is larger than {MAX_REQUEST >> 20} MiB"
            raise _refused("request.too-large", message)
        blocks.append(block)
    return b"".join(blocks)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"field {twice!r} is given twice")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _refused(code: str, message: str) -> ColdSnapError:
    from coldsnap.artifact.errors import ColdSnapError  # noqa: PLC0415  (costs milliseconds)

    return ColdSnapError(code, message)
