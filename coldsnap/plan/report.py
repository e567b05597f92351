"""Violations of a schema -> what a person reads: message with the step's name, near name, place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coldsnap.artifact.errors import Source
from coldsnap.plan.document import Document
from coldsnap.plan.problems import Problems, hint, near, shown
from coldsnap.plan.rules import names_rule, rule_of

_KINDS = {
    "string": "text",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a map",
    "null": "null",
}
_THINGS = {
    "steps": "step",
    "units": "unit",
    "workers": "worker",
    "groups": "group",
    "services": "service",
    "vars": "variable",
    "inputs": "input",
    "outputs": "output",
}
_BOUNDS = {
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be more than {}",
    "exclusiveMaximum": "must be less than {}",
    "multipleOf": "must be a multiple of {}",
    "minItems": "must have at least {} items",
    "maxItems": "may have at most {} items",
    "minLength": "must have at least {} characters",
    "maxLength": "may have at most {} characters",
    "minProperties": "must have at least {} entries",
    "maxProperties": "may have at most {} entries",
}


@dataclass(frozen=True)
class Checked:
    """A part of a document that is checked against a schema of its own."""

    document: Document
    base: tuple[str | int, ...] = ()
    what: str = "the plan"


@dataclass(frozen=True)
class Violation:
    """One rule of a schema that a value breaks."""

    rule: str
    """Keyword: ``type``, ``enum``, ``additionalProperties``..."""
    bound: Any
    """The keyword's value."""
    value: Any
    """What breaks it."""
    schema: Mapping[str, Any]
    """The schema that holds the keyword."""
    path: tuple[str | int, ...]
    message: str


class Report:
    def __init__(self, checked: Checked, problems: Problems) -> None:
        self._checked, self._problems = checked, problems
        self._document = checked.document

    def add(self, error: Violation) -> None:
        handler = _HANDLERS.get(error.rule, Report.other)
        handler(self, error, (*self._checked.base, *error.path))

    def source(self, path: Sequence[str | int], *, key: bool = False) -> Source:
        return self._document.source(path, key=key)

    def thing(self, path: Sequence[str | int]) -> tuple[str, Sequence[str | int]]:
        """``step "probe"`` and the rest of the path in it; ``the plan`` and all of it."""
        least = 2
        if len(path) >= least and path[0] in _THINGS:
            named = self._document.node(path[:2])
            value = named.plain() if named else None
            name: Any = path[1]
            if isinstance(name, int):
                label = next(
                    (
                        value[key]
                        for key in ("id", "type", "uses")
                        if isinstance(value, dict) and isinstance(value.get(key), str)
                    ),
                    None,
                )
                return (
                    f"{_THINGS[str(path[0])]} {shown(label) if label else f'number {name + 1}'}",
                    path[2:],
                )
            return f"{_THINGS[str(path[0])]} {shown(name)}", path[2:]
        return self._checked.what, path

    def field(self, path: Sequence[str | int]) -> str:
        """``"retry.attempts" in step "probe"``, to start a message."""
        thing, rest = self.thing(path)
        if not rest:
            return thing
        name = shown(dotted(rest))
        return name if thing == self._checked.what else f"{name} in {thing}"

    def unknown_field(self, error: Violation, path: Sequence[str | int]) -> None:
        known = error.schema.get("properties", {})
        patterns = error.schema.get("patternProperties", {})
        for name in error.value:
            if name in known or any(re.search(pattern, name) for pattern in patterns):
                continue
            place = self.source((*path, name), key=True)
            if patterns:
                self._problems.add(
                    "plan.wrong-value",
                    f"{shown(name)} is not allowed as a name: {names_rule(patterns)}",
                    place,
                )
                continue
            thing, rest = self.thing(path)
            inside = f"{shown(dotted(rest))} of {thing}" if rest else thing
            self._problems.add(
                "plan.unknown-field",
                f"unknown field {shown(name)} in {inside}",
                place,
                remedy=hint(name, known, self._see(path)),
            )

    def missing(self, error: Violation, path: Sequence[str | int]) -> None:
        absent = [name for name in error.bound if name not in error.value]
        if "coldsnap" in absent and not path:
            kind = error.schema["properties"]["coldsnap"]["const"]
            self._problems.add(
                "plan.not-a-plan",
                f"{self._document.file} does not say what it is",
                self.source(path),
                remedy=f"start it with  coldsnap: {kind}",
            )
        for name in absent:
            if name == "coldsnap" and not path:
                continue
            thing, rest = self.thing(path)
            inside = f"{shown(dotted(rest))} of {thing}" if rest else thing
            why = ": its type has required parameters" if name == "with" else ""
            self._problems.add(
                "plan.missing-field",
                f"{inside} needs {shown(name)}{why}",
                self.source(path),
                remedy=self._see(path) and f"See: {self._see(path)}",
            )

    def wrong_type(self, error: Violation, path: Sequence[str | int]) -> None:
        kinds = error.bound
        kinds = [kinds] if isinstance(kinds, str) else kinds
        expected = " or ".join(_KINDS[kind] for kind in kinds)
        is_scalar = isinstance(error.value, (int, float))
        self._problems.add(
            "plan.wrong-type",
            f"{self.field(path)} must be {expected}, not {_given(error.value)}",
            self.source(path),
            remedy="put it in quotes" if "string" in kinds and is_scalar else "",
        )

    def not_one_of(self, error: Violation, path: Sequence[str | int]) -> None:
        value = error.value
        allowed = error.bound if error.rule == "enum" else [error.bound]
        if path[-1:] == ("type",) and path[:1] == ("steps",):
            code, what, see = "plan.unknown-type", "step type", "coldsnap step list"
        elif path[-1:] == ("uses",) and path[:1] == ("steps",):
            code, what, see = "plan.unknown-template", "template", "coldsnap step list"
        elif tuple(path) == ("engine",):
            code, what, see = "plan.unknown-engine", "engine", ""
        elif tuple(path) == ("coldsnap",):
            self._problems.add(
                "plan.version",
                f"{shown(value)} is not a format that is known here",
                self.source(path),
                remedy=f"write  coldsnap: {allowed[0]}",
            )
            return
        else:
            self._wrong_choice(value, allowed, path)
            return
        names = [str(name) for name in allowed]
        self._problems.add(
            code,
            f"unknown {what} {shown(value)}",
            self.source(path),
            remedy=hint(str(value), names, see),
        )

    def _wrong_choice(self, value: Any, allowed: Iterable[Any], path: Sequence[str | int]) -> None:
        names = [str(each) if isinstance(each, str) else shown(each) for each in allowed]
        meant = near(str(value), names) if isinstance(value, str) else ""
        self._problems.add(
            "plan.wrong-value",
            f"{self.field(path)} must be one of {', '.join(names)}; not {shown(value)}",
            self.source(path),
            remedy=f'did you mean "{meant}"?' if meant else "",
        )

    def pattern(self, error: Violation, path: Sequence[str | int]) -> None:
        rule = rule_of(error.bound) or f"it must match {error.bound}"
        self._problems.add(
            "plan.wrong-value",
            f"{self.field(path)} may not be {shown(error.value)}: {rule}",
            self.source(path),
        )

    def alternatives(self, error: Violation, path: Sequence[str | int]) -> None:
        rules = [rule_of(branch.get("pattern")) for branch in error.bound]
        kinds = dict.fromkeys(_KINDS.get(str(branch.get("type")), "") for branch in error.bound)
        expected = next(filter(None, rules), "") or " or ".join(filter(None, kinds))
        self._problems.add(
            "plan.wrong-type",
            f"{self.field(path)} must be {expected or 'something else'}, not {_given(error.value)}",
            self.source(path),
        )

    def type_or_uses(self, error: Violation, path: Sequence[str | int]) -> None:
        if not isinstance(error.value, Mapping):
            return
        thing, _ = self.thing(path)
        if "type" in error.value:
            message = f'{thing} has both "type" and "uses"; it takes one of them'
            place = self.source((*path, "uses"), key=True)
            self._problems.add("plan.wrong-value", message, place)
        else:
            self._problems.add(
                "plan.missing-field",
                f'{thing} needs "type" or "uses"',
                self.source(path),
                remedy="See: coldsnap step list",
            )

    def other(self, error: Violation, path: Sequence[str | int]) -> None:
        form = _BOUNDS.get(error.rule)
        bound = error.bound
        if form and error.rule == "minItems" and bound == 1:
            text = "must not be empty"
        elif form:
            text = form.format(bound)
            if isinstance(error.value, (int, float)):
                text += f", not {shown(error.value)}"
        else:
            text = f"is not valid: {error.message[:200]}"
        self._problems.add("plan.wrong-value", f"{self.field(path)} {text}", self.source(path))

    def _see(self, path: Sequence[str | int]) -> str:
        least = 2
        if len(path) < least or path[0] != "steps":
            return ""
        node = self._document.node(path[:2])
        value = node.plain() if node else None
        kind = value.get("type") or value.get("uses") if isinstance(value, dict) else None
        return f"coldsnap step show {kind}" if isinstance(kind, str) and "." in kind else ""


_HANDLERS: dict[str, Callable[[Report, Violation, Sequence[str | int]], None]] = {
    "additionalProperties": Report.unknown_field,
    "required": Report.missing,
    "type": Report.wrong_type,
    "enum": Report.not_one_of,
    "const": Report.not_one_of,
    "pattern": Report.pattern,
    "anyOf": Report.alternatives,
    "oneOf": Report.type_or_uses,
}


def dotted(path: Sequence[str | int]) -> str:
    """A path as a person writes it: ``with.prompts[0].text``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _given(value: Any) -> str:
    return "an empty value" if value is None else shown(value)
