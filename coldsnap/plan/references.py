"""Checking at load that every reference in an expression will mean something."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coldsnap.artifact.errors import Source
from coldsnap.plan.expressions import Ref
from coldsnap.plan.frames import DYNAMIC, condition_references, references
from coldsnap.plan.problems import Problems, hint, shown
from coldsnap.plan.values import ExpressionError
from coldsnap.sdk.step import Scope
from coldsnap.sdk.topology import Model, Unit

PLAN_FIELDS = ("description", "driver", "engine", "name", "store")
HOST_FIELDS = ("facts", "name", "vars")
_FIELDS: Mapping[str, Sequence[str]] = {
    "model": tuple(Model.model_fields),
    "plan": PLAN_FIELDS,
    "host": HOST_FIELDS,
    "unit": tuple(Unit.model_fields),
}
_OUTPUT_PARTS = 4
"""``steps.ID.outputs.NAME``"""


@dataclass(frozen=True)
class Visible:
    """What expressions in one frame may refer to."""

    variables: Sequence[str] | None
    """None inside a template."""
    inputs: Sequence[str] | None
    """None in the plan."""
    outputs: Mapping[str, Sequence[str]]
    """Local id of a step or use -> names of its outputs."""
    has_model: bool


@dataclass(frozen=True)
class Reader:
    """Who reads a value: decides what else it may refer to."""

    label: str
    """``step "publish"``"""
    needed: frozenset[str] | None = None
    """Local ids that it needs, directly or through others; None where order does not matter."""
    scope: Scope | None = None
    """Where a step runs; None where that is not known."""
    static: str = ""
    """Name of the field if it is read before hosts are known."""
    own: str = ""
    """Its own local id."""


def check_value_references(
    raw: Any,
    visible: Visible,
    reader: Reader,
    problems: Problems,
    place: Callable[[tuple[str | int, ...]], Source | None],
) -> None:
    """Check every reference in a raw value; `place` gives the source of a path in it."""
    try:
        for ref, path in references(raw):
            _check(ref, visible, reader, problems, place(path))
    except ExpressionError as error:
        message = f"{reader.label}: {error.message}"
        problems.add(error.code, message, place(error.path), remedy=error.remedy)


def check_condition(
    text: str, visible: Visible, reader: Reader, problems: Problems, source: Source | None
) -> bool:
    """Check a ``when``; False if it does not parse."""
    try:
        for ref in condition_references(text):
            _check(ref, visible, reader, problems, source)
    except ExpressionError as error:
        problems.add(error.code, f"{reader.label}: {error.message}", source, remedy=error.remedy)
        return False
    return True


def _check(
    ref: Ref, visible: Visible, reader: Reader, problems: Problems, source: Source | None
) -> None:
    fault = _fault(ref, visible, reader)
    if fault is not None:
        code, message, remedy = fault
        problems.add(code, f"{reader.label}: {message}", source, remedy=remedy)


Fault = tuple[str, str, str]


def _fault(ref: Ref, visible: Visible, reader: Reader) -> Fault | None:
    root = str(ref[0])
    if len(ref) == 1:
        return "plan.expression", f"{root} is not a value; name one of its fields", ""
    if reader.static and root in DYNAMIC:
        return (
            "plan.not-static",
            f"{shown(reader.static)} is read before any step runs; it cannot refer to {root}",
            "use vars, inputs, model or plan",
        )
    if root == "vars":
        return _variable(str(ref[1]), visible)
    if root == "inputs":
        return _input(str(ref[1]), visible)
    if root == "steps":
        return _step(ref, visible, reader)
    return _field(root, str(ref[1]), visible, reader)


def _variable(name: str, visible: Visible) -> Fault | None:
    if visible.variables is None:
        remedy = "declare an input and give it in the use's with"
        return "plan.unknown-variable", "a template sees its inputs, not the plan's vars", remedy
    if name in visible.variables:
        return None
    known = visible.variables
    remedy = hint(name, known) or "declare it under vars"
    return "plan.unknown-variable", f"unknown variable {shown(name)}", remedy


def _input(name: str, visible: Visible) -> Fault | None:
    if visible.inputs is None:
        return "plan.unknown-name", "a plan has vars; only templates have inputs", ""
    if name in visible.inputs:
        return None
    return "plan.unknown-input", f"unknown input {shown(name)}", hint(name, visible.inputs)


def _step(ref: Ref, visible: Visible, reader: Reader) -> Fault | None:
    name = str(ref[1])
    if name not in visible.outputs:
        return "plan.unknown-step", f"there is no step {shown(name)}", hint(name, visible.outputs)
    if name == reader.own:
        return "plan.missing-need", "a step cannot refer to its own outputs", ""
    if reader.needed is not None and name not in reader.needed:
        remedy = f"add it: needs: [{name}]"
        return "plan.missing-need", f"refers to step {shown(name)}, which it does not need", remedy
    if ref[2:3] != ("outputs",) or len(ref) < _OUTPUT_PARTS:
        return (
            "plan.expression",
            f"steps.{name} has outputs only",
            f"write steps.{name}.outputs.NAME",
        )
    known = visible.outputs[name]
    if str(ref[3]) in known:
        return None
    remedy = hint(str(ref[3]), known) or "it declares no outputs"
    return "plan.unknown-output", f"step {shown(name)} has no output {shown(str(ref[3]))}", remedy


def _field(root: str, name: str, visible: Visible, reader: Reader) -> Fault | None:
    if root == "model" and not visible.has_model:
        return "plan.unknown-name", "the plan has no model", "add model: to the plan"
    if root in ("host", "unit") and reader.scope is Scope.RUN:
        return "plan.unknown-name", f"the step runs once, on no host; there is no {root}", ""
    if root == "unit" and reader.scope is Scope.HOST:
        return "plan.unknown-name", "the step runs once per host; there is no unit", ""
    if name in _FIELDS[root]:
        return None
    return "plan.unknown-name", f"{root} has no {shown(name)}", hint(name, _FIELDS[root])
