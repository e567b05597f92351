"""Filling in expressions per host and unit: parameters, conditions, units.

Thread-safe: what does not depend on a host is rendered once and kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import ValidationError

from coldsnap.artifact.errors import ColdSnapError, Source
from coldsnap.plan.expressions import parse_condition
from coldsnap.plan.frames import OutputsOf, Scope, UnknownOutput, fill, is_static
from coldsnap.plan.given_places import given_place, nearest
from coldsnap.plan.model import Driver, Frame, Plan, StepNode
from coldsnap.plan.problems import Problems, shown
from coldsnap.plan.registry import Registry
from coldsnap.plan.report import dotted
from coldsnap.plan.unit_rules import with_texts
from coldsnap.plan.validation import typed_message
from coldsnap.plan.values import ExpressionError
from coldsnap.sdk.spec import Spec
from coldsnap.sdk.topology import Model, Unit

__all__ = ["RenderScope", "Renderer", "UnknownOutput", "plan_names"]


@dataclass(frozen=True)
class RenderScope:
    """One instance: where it runs and what it can see."""

    host: str = ""
    """Name; empty for a step that runs on no host."""
    host_vars: Mapping[str, Any] = field(default_factory=dict)
    host_facts: Mapping[str, Any] | None = None
    """None: not known yet, so what refers to them is unknown."""
    unit: Unit | None = None
    outputs: OutputsOf | None = None
    """Expanded step id -> its outputs as seen from here; None for those not known yet."""


class HasHead(Protocol):
    """A plan, or a plan's head while it is loaded."""

    @property
    def engine(self) -> str | None: ...
    @property
    def driver(self) -> Driver: ...
    @property
    def model(self) -> Model | None: ...
    @property
    def store(self) -> str: ...


def plan_names(name: str, description: str, head: HasHead, variables: Mapping[str, Any]) -> Scope:
    """What every expression of a plan sees, whatever the host."""
    fixed: dict[str, Any] = {
        "plan": {
            "name": name,
            "description": description,
            "engine": head.engine,
            "driver": head.driver,
            "store": head.store,
        }
    }
    if head.model is not None:
        values = head.model.model_dump(mode="json")
        # An engine takes a Hub name where it takes a folder.
        fixed["model"] = {**values, "path": values["path"] or values["id"]}
    return Scope(fixed, variables)


class Renderer:
    """Renders the steps of one plan."""

    def __init__(self, plan: Plan, registry: Registry) -> None:
        self._plan, self._registry = plan, registry
        self._names = plan_names(plan.name, plan.description, plan, plan.values())
        self._kept: dict[str, Spec] = {}
        self._static: dict[str, bool] = {}

    def spec(self, node: StepNode, scope: RenderScope) -> Spec:
        """The typed parameters of a step for one instance.

        Raises:
            ColdSnapError: ``plan.*`` with the place in the plan or template.
            UnknownOutput: if a parameter refers to an output that is not known yet.
        """
        kept = self._kept.get(node.id)
        if kept is not None:
            return kept
        spec = self._spec(node, self._scope(scope))
        if self._is_static(node):
            self._kept[node.id] = spec
        return spec

    def holds(self, node: StepNode, scope: RenderScope) -> bool:
        """Whether the step's ``when``, and those of the uses around it, hold.

        Raises:
            ColdSnapError, UnknownOutput: as `spec`; ``plan.wrong-type`` if it is not a bool.
        """
        names = self._scope(scope)
        for text, frame in node.outer_when:
            if not self._condition(text, frame, names, node):
                return False
        return node.when is None or self._condition(node.when, node.frame, names, node)

    def unit(self, unit_id: str, scope: RenderScope) -> Unit:
        """A unit with what its host fills in.

        Raises:
            ColdSnapError: as `spec`.
            KeyError: if there is no such unit.
        """
        raw = self._plan.raw_units[unit_id]
        sources = self._plan.unit_sources.get(unit_id, {})
        try:
            value = fill(raw, self._scope(scope).names(Frame()))
            return Unit.model_validate(with_texts(value))
        except ExpressionError as error:
            raise _located(error, sources, error.path, f"unit {shown(unit_id)}") from error
        except ValidationError as error:
            raise _invalid(error, sources, (), f"unit {shown(unit_id)}") from error

    def check(self, node: StepNode) -> None:
        """Render what depends on no host, no unit and no other step, to see that it is valid.

        Raises:
            ColdSnapError: as `spec`.
        """
        if self._is_static(node):
            self.spec(node, RenderScope())

    def is_static(self, node: StepNode) -> bool:
        """Whether the parameters are the same for every instance."""
        return self._is_static(node)

    def _is_static(self, node: StepNode) -> bool:
        if node.id not in self._static:
            self._static[node.id] = is_static(node.raw_with, node.frame)
        return self._static[node.id]

    def _scope(self, scope: RenderScope) -> Scope:
        fixed = dict(self._names.fixed)
        if scope.host:
            facts = scope.host_facts
            fixed["host"] = {
                "name": scope.host,
                "vars": scope.host_vars,
                "facts": _Unread(scope.host) if facts is None else facts,
            }
        if scope.unit is not None:
            fixed["unit"] = scope.unit.model_dump(mode="json")
        outputs = scope.outputs or (lambda _step: None)
        return Scope(fixed, self._names.variables, outputs)

    def _spec(self, node: StepNode, names: Scope) -> Spec:
        label = f"step {shown(node.id)}"
        try:
            value = fill(node.raw_with, names.names(node.frame))
            model: Any = self._registry.steps[node.type].spec
            spec: Spec = model.model_validate(value)
        except ExpressionError as error:
            raise _located(error, node.sources, ("with", *error.path), label) from error
        except ValidationError as error:
            see = f"See: coldsnap step show {node.type}"
            raise _invalid(error, node.sources, ("with",), label, see, node) from error
        return spec

    def _condition(self, text: str, frame: Frame, names: Scope, node: StepNode) -> bool:
        label = f"step {shown(node.id)}"
        try:
            value = parse_condition(text).evaluate(names.names(frame))
        except ExpressionError as error:
            raise _located(error, node.sources, ("when",), label) from error
        if not isinstance(value, bool):
            raise ColdSnapError(
                "plan.wrong-type",
                f"{label}: when must be true or false, not {shown(value)}",
                source=node.sources.get("when") or node.source,
                remedy="compare it: when: x == 1, or x | bool",
            )
        return value


def _located(
    error: ExpressionError,
    sources: Mapping[str, Source],
    path: tuple[str | int, ...],
    label: str,
) -> ColdSnapError:
    return ColdSnapError(
        error.code,
        f"{label}: {error.message}",
        source=error.source or nearest(sources, path),
        remedy=error.remedy,
    )


def _invalid(
    error: ValidationError,
    sources: Mapping[str, Source],
    base: tuple[str | int, ...],
    label: str,
    remedy: str = "",
    node: StepNode | None = None,
) -> ColdSnapError:
    """With `node`, errors are shown where the plan gave the value to a template, if it did."""
    problems = Problems()
    for found in error.errors(include_url=False, include_context=False):
        path = (*base, *found["loc"])
        code, message = typed_message(found)
        written = nearest(sources, path)
        place = given_place(node.raw_with, path[len(base) :], node.frame) if node else None
        problems.add(
            code,
            f"{shown(dotted(path))} in {label}: {message}" if path else f"{label}: {message}",
            place or written,
            remedy="convert it: {{ ... | string }}" if found["type"] == "string_type" else remedy,
            details=(f"used by {written.file}:{written.line}",) if place and written else (),
        )
    try:
        problems.raise_if_any()
    except ColdSnapError as single:
        return single
    return ColdSnapError("plan.wrong-value", f"{label}: its parameters are not valid")


class _Unread(Mapping[str, Any]):
    """Facts of a host that nobody has read."""

    def __init__(self, host: str) -> None:
        self._host = host

    def __contains__(self, key: object) -> bool:
        return True

    def __getitem__(self, name: str) -> Any:
        raise UnknownOutput("", f"facts of {self._host}: {name}")

    def __iter__(self) -> Any:
        raise UnknownOutput("", f"facts of {self._host}")

    def __len__(self) -> int:
        return 1
