"""Reading raw values in their scope: what names mean in the plan and inside a template use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from coldsnap.plan.expressions import Ref, parse_condition, parse_text
from coldsnap.plan.model import Frame
from coldsnap.plan.problems import shown
from coldsnap.plan.report import dotted
from coldsnap.plan.values import ExpressionError
from coldsnap.plan.variables import check_value

OutputsOf: TypeAlias = Callable[[str], Mapping[str, Any] | None]
"""Expanded step id -> the outputs seen from here; None if they are not known yet."""

DYNAMIC = frozenset({"steps", "host", "unit"})
"""What is known only per host and unit, or after other steps."""


class UnknownOutput(Exception):  # noqa: N818 - a state, not an error
    """A value refers to what is known only after apply."""

    def __init__(self, step: str, name: str) -> None:
        super().__init__(f"steps.{step}.outputs.{name}" if step else name)
        self.step, self.name = step, name


@dataclass(frozen=True)
class Scope:
    """Names that mean the same in every frame of one instance."""

    fixed: Mapping[str, Any]
    """`model` and `plan`; `host` and `unit` where there are any."""
    variables: Mapping[str, Any] = field(default_factory=dict)
    outputs: OutputsOf | None = None

    def names(self, frame: Frame) -> Mapping[str, Any]:
        """What expressions of `frame` see."""
        names: dict[str, Any] = dict(self.fixed)
        if frame.parent is None:
            names["vars"] = self.variables
        else:
            names["inputs"] = _Inputs(frame, self)
        if self.outputs is not None:
            names["steps"] = _Steps(frame, self, self.outputs)
        return names


def fill(raw: Any, names: Mapping[str, Any]) -> Any:
    """`raw` with every expression in it replaced by its value.

    Raises:
        ExpressionError: with the `path` in `raw` at which it was.
        UnknownOutput: if it refers to an output that is not known yet.
    """
    if isinstance(raw, str):
        parsed = parse_text(raw)
        return raw if parsed is None else parsed.evaluate(names)
    if isinstance(raw, Mapping):
        return {key: _fill_at(key, value, names) for key, value in raw.items()}
    if isinstance(raw, (list, tuple)):
        return [_fill_at(index, value, names) for index, value in enumerate(raw)]
    return raw


def _fill_at(key: str | int, raw: Any, names: Mapping[str, Any]) -> Any:
    try:
        return fill(raw, names)
    except ExpressionError as error:
        error.path = (key, *error.path)
        raise


def references(
    raw: Any, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[Ref, tuple[str | int, ...]]]:
    """Every reference in a raw value, with the path at which it is.

    Raises:
        ExpressionError: for a text that does not parse, with its `path`.
    """
    if isinstance(raw, str):
        try:
            parsed = parse_text(raw)
        except ExpressionError as error:
            raise _placed(error, path) from None
        for ref in parsed.refs if parsed else ():
            yield ref, path
    elif isinstance(raw, Mapping):
        for key in raw:
            yield from references(raw[key], (*path, key))
    elif isinstance(raw, (list, tuple)):
        for index, value in enumerate(raw):
            yield from references(value, (*path, index))


def condition_references(text: str) -> tuple[Ref, ...]:
    """References of a ``when``; raises as `parse_condition`."""
    return parse_condition(text).refs


def is_static(raw: Any, frame: Frame) -> bool:
    """Whether the value is the same for every host and known before any step ran."""
    return all(_is_static(ref, frame) for ref, _ in references(raw))


def _is_static(ref: Ref, frame: Frame) -> bool:
    if ref[0] in DYNAMIC:
        return False
    if ref[0] != "inputs" or frame.parent is None:
        return True
    name = str(ref[1]) if len(ref) > 1 else ""
    return name not in frame.given or is_static(frame.inputs[name], frame.parent)


def _placed(error: ExpressionError, path: tuple[str | int, ...]) -> ExpressionError:
    # Parsed texts are cached, errors are not: the copy keeps them apart anyway.
    placed = ExpressionError(error.code, error.message, error.remedy)
    placed.path = path
    return placed


class _Lazy(Mapping[str, Any]):
    """A map whose values are read when asked for."""

    def __init__(self, keys: Mapping[str, Any]) -> None:
        self._keys = keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __getitem__(self, key: str) -> Any:
        raise NotImplementedError


class _Inputs(_Lazy):
    """Inputs of a template use: given ones are read in the scope of the use."""

    def __init__(self, frame: Frame, scope: Scope) -> None:
        super().__init__(frame.inputs)
        self._frame, self._scope = frame, scope

    def __getitem__(self, name: str) -> Any:
        frame = self._frame
        raw = frame.inputs[name]
        if name not in frame.given or frame.parent is None:
            return raw
        try:
            value = fill(raw, self._scope.names(frame.parent))
            check_value(f"input {shown(name)} of {frame.template}", frame.declared[name], value)
        except (ExpressionError, ValueError) as error:
            raise _at_input(error, frame, name) from error
        return value


def _at_input(error: Exception, frame: Frame, name: str) -> ExpressionError:
    if not isinstance(error, ExpressionError):
        error = ExpressionError("plan.wrong-type", str(error))
    if error.source is None:
        place = dotted(("with", name, *error.path))
        error.source = frame.sources.get(place) or frame.sources.get(f"with.{name}")
    return error


class _Steps(_Lazy):
    """``steps.<local id>`` of a frame."""

    def __init__(self, frame: Frame, scope: Scope, outputs: OutputsOf) -> None:
        super().__init__({**frame.steps, **frame.uses})
        self._frame, self._scope, self._outputs = frame, scope, outputs

    def __getitem__(self, local: str) -> Any:
        use = self._frame.uses.get(local)
        if use is not None:
            return {"outputs": _UseOutputs(use, self._scope)}
        expanded = self._frame.steps[local]
        known = self._outputs(expanded)
        return {"outputs": _NotYet(expanded) if known is None else known}


class _UseOutputs(_Lazy):
    """``steps.<use>.outputs``: read in the template's own scope."""

    def __init__(self, frame: Frame, scope: Scope) -> None:
        super().__init__(frame.outputs)
        self._frame, self._scope = frame, scope

    def __getitem__(self, name: str) -> Any:
        try:
            return fill(self._frame.outputs[name], self._scope.names(self._frame))
        except ExpressionError as error:
            if error.source is None:
                error.source = self._frame.sources.get(f"outputs.{name}")
            raise


class _NotYet(Mapping[str, Any]):
    """Outputs of a step that has not run."""

    def __init__(self, step: str) -> None:
        self._step = step

    def __contains__(self, key: object) -> bool:
        return True

    def __getitem__(self, name: str) -> Any:
        raise UnknownOutput(self._step, name)

    def __iter__(self) -> Iterator[str]:
        raise UnknownOutput(self._step, "*")

    def __len__(self) -> int:
        return 1
