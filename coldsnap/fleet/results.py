"""What an operation's answer means: the verb's result, or the verb's error raised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.sdk.host import JobEvent, OperationResult

_KINDS = frozenset({"phase", "progress", "log"})
_TEXT_LIMIT = 4000
_DETAILS_LIMIT = 40


def operation_result(answer: Mapping[str, Any], where: str) -> OperationResult:
    """The answer of the child as the step gets it.

    Raises:
        ColdSnapError: the error that the runtime verb reported.
    """
    line = answer.get("result")
    if isinstance(line, Mapping) and not line.get("ok"):
        raise verb_error(line.get("error"), where)
    return OperationResult(
        changed=bool(answer["changed"]),
        result=line.get("result") if isinstance(line, Mapping) else None,
        stdout=str(answer["stdout"]),
        stderr=str(answer["stderr"]),
    )


def verb_error(reported: Any, where: str) -> ColdSnapError:
    """The error that a host sent: untrusted text, so bounded and made of known fields only."""
    if not isinstance(reported, Mapping):
        return ColdSnapError("runtime.no-answer", "the runtime reported no reason", where=where)
    details = reported.get("details")
    lines = details if isinstance(details, list) else []
    return ColdSnapError(
        code=_text(reported, "code") or "runtime.unknown",
        message=_text(reported, "message"),
        where=_where(_text(reported, "where"), where),
        details=tuple(str(line)[:_TEXT_LIMIT] for line in lines[:_DETAILS_LIMIT]),
        cause=_text(reported, "cause"),
        remedy=_text(reported, "remedy"),
        changed=bool(reported.get("changed", False)),
    )


def _where(told: str, host: str) -> str:
    """A host does not know the name the inventory gave it."""
    if not told or told == host or told.startswith(f"{host}:"):
        return told or host
    return f"{host}: {told}"


def _text(reported: Mapping[str, Any], name: str) -> str:
    value = reported.get(name)
    return value[:_TEXT_LIMIT] if isinstance(value, str) else ""


def job_event(event: Mapping[str, Any]) -> JobEvent | None:
    """An event line of the runtime as the sdk has it; None for a kind we do not know."""
    kind = event.get("event")
    if kind not in _KINDS:
        return None
    return JobEvent(
        kind=str(kind),
        message=str(event.get("message") or "")[:_TEXT_LIMIT],
        done=_number(event.get("done")),
        total=_number(event.get("total")),
        unit="B" if event.get("unit") is None else str(event["unit"])[:32],
    )


def _number(value: Any) -> int | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value)
    return None
