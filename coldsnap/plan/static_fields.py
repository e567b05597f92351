"""What is read before hosts are known: `hosts`, `timeout`, `retry`; and places of fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from coldsnap.artifact.errors import Source
from coldsnap.plan.document import Document
from coldsnap.plan.frames import Scope, fill, is_static
from coldsnap.plan.items import Item
from coldsnap.plan.language import RetryDoc
from coldsnap.plan.model import Frame, Retry
from coldsnap.plan.problems import Problems
from coldsnap.plan.references import Reader, Visible, check_value_references
from coldsnap.plan.report import Checked, Report, dotted
from coldsnap.plan.validation import check_typed
from coldsnap.plan.values import ExpressionError
from coldsnap.sdk.spec import Duration

_TYPES: Mapping[str, TypeAdapter[Any]] = {
    "hosts": TypeAdapter(str | None),
    "timeout": TypeAdapter(Duration | None),
    "retry": TypeAdapter(RetryDoc | None),
}


@dataclass(frozen=True)
class StaticFields:
    hosts: str | None
    timeout: float | None
    retry: Retry


def read_static(
    item: Item,
    frame: Frame,
    document: Document,
    visible: Visible,
    names: Scope,
    problems: Problems,
) -> StaticFields:
    """The static fields of a step; what is wrong is added to `problems`."""
    values: dict[str, Any] = {}
    for name, adapter in _TYPES.items():
        path = (*item.path, name)
        known = len(problems.found)
        raw = item.raw.get(name)
        check_value_references(
            raw,
            visible,
            Reader(item.label, static=name),
            problems,
            lambda inner, path=path: document.source((*path, *inner)),  # type: ignore[misc]
        )
        if raw is None or len(problems.found) > known:
            continue
        value = static_value(raw, frame, names, Checked(document, path), problems)
        if value is None:
            continue
        try:
            values[name] = adapter.validate_python(value)
        except ValidationError as error:
            check_typed(error, Checked(document, path), problems)
    retry = values.get("retry")
    return StaticFields(
        hosts=values.get("hosts"),
        timeout=values.get("timeout"),
        retry=Retry(retry.attempts, retry.backoff, retry.delay, retry.max_delay)
        if retry
        else Retry(),
    )


def static_value(raw: Any, frame: Frame, names: Scope, checked: Checked, problems: Problems) -> Any:
    """`raw` filled in without a host; None and a problem if that fails."""
    if not is_static(raw, frame):
        problems.add(
            "plan.not-static",
            f"{Report(checked, problems).field(checked.base)} is read before any step runs;"
            " an input of the template refers to a host, a unit or a step here",
            checked.document.source(checked.base),
        )
        return None
    try:
        return fill(raw, names.names(frame))
    except ExpressionError as error:
        source = error.source or checked.document.source((*checked.base, *error.path))
        problems.add(error.code, error.message, source, remedy=error.remedy)
        return None


def sources_below(
    document: Document, path: tuple[str | int, ...], raw: Mapping[str, Any]
) -> dict[str, Source]:
    """Place of every field in `raw`, which stands at `path`: ``with.prompt`` -> source."""
    return {dotted(inner): document.source((*path, *inner)) for inner in _paths(raw)}


def _paths(raw: Any) -> Iterator[tuple[str | int, ...]]:
    if isinstance(raw, Mapping):
        pairs: Any = raw.items()
    elif isinstance(raw, (list, tuple)):
        pairs = enumerate(raw)
    else:
        return
    for key, value in pairs:
        yield (key,)
        for inner in _paths(value):
            yield (key, *inner)
