"""Where in the user's plan a parameter of a template's step was given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coldsnap.artifact.errors import Source
from coldsnap.plan.frames import references
from coldsnap.plan.model import Frame
from coldsnap.plan.report import dotted
from coldsnap.plan.values import ExpressionError

Path = tuple[str | int, ...]


def given_place(raw: Any, path: Path, frame: Frame) -> Source | None:
    """The place of what the value at `path` came from, in the plan that uses the template.

    Args:
        raw: parameters of a step as its template writes them.
        path: in `raw`; it may go on into what an input holds.
        frame: of the step.

    None for a step of the plan itself, for what the template's author wrote, and for what is made
    of several inputs.
    """
    while frame.parent is not None:
        value, rest = _reached(raw, path)
        name = _input(value, frame)
        if name is None:
            return None
        raw, path = frame.inputs, (name, *rest)
        if frame.parent.parent is None:
            return nearest(frame.sources, ("with", *path))
        frame = frame.parent
    return None


def _reached(raw: Any, path: Path) -> tuple[Any, Path]:
    """The value at `path`, or the text on the way whose expression holds the rest."""
    value = raw
    for number, part in enumerate(path):
        if isinstance(value, str):
            return value, path[number:]
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None, ()
    return value, ()


def _input(value: Any, frame: Frame) -> str | None:
    """The one given input that a text refers to."""
    if not isinstance(value, str):
        return None
    try:
        named = {str(ref[1]) for ref, _ in references(value) if ref[0] == "inputs" and len(ref) > 1}
    except ExpressionError:
        return None
    given = named & frame.given
    return next(iter(given)) if len(given) == 1 else None


def nearest(sources: Mapping[str, Source], path: Path) -> Source | None:
    """The place of `path`, or of the nearest part around it that has one."""
    while path:
        found = sources.get(dotted(path))
        if found is not None:
            return found
        path = path[:-1]
    return None
