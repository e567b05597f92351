"""Expressions: ``{{ ... }}`` in values, read by Jinja2's sandbox; values only, all bounded.

No statements, calls, loops or attributes of Python objects. A value that is wholly one
``{{ expression }}`` keeps the type of its result; otherwise results are put into the text
(true/false, numbers, text; a list or map as canonical JSON).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

from jinja2 import TemplateError, Undefined, UndefinedError, nodes

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.plan.problems import near, shown
from coldsnap.plan.sandbox import ENVIRONMENT, FILTERS, TESTS, lookup
from coldsnap.plan.values import ExpressionError, as_json, as_text

ROOTS = frozenset({"vars", "inputs", "steps", "model", "plan", "host", "unit"})
MAX_EXPRESSION = 2000
MAX_RESULT = 1 << 20
"""Characters of one rendered text."""

Ref: TypeAlias = tuple[str | int, ...]
"""A dotted reference: ``("steps", "probe", "outputs", "free")``."""

_DOTTED = re.compile(r"[a-z]+(\.[A-Za-z_][A-Za-z0-9_]*)+")
_STEP = re.compile(
    r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?<![\w.])steps\.([A-Za-z0-9][\w-]*)(?=\.outputs\b)"""
)
_ALLOWED = (
    nodes.Const, nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Keyword, nodes.Name,
    nodes.Getattr, nodes.Getitem, nodes.Filter, nodes.Test, nodes.CondExpr, nodes.Compare,
    nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Neg, nodes.Pos, nodes.Add, nodes.Sub,
    nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow,
)  # fmt: skip


_REFUSED: dict[type[nodes.Node], tuple[str, str]] = {
    nodes.Call: ("calls", "use filters: vars.name | lower"),
    nodes.Concat: ("~ operators", "join texts by +, or write {{ a }}{{ b }}"),
    nodes.Slice: ("slices", ""),
}


@dataclass(frozen=True)
class Expression:
    """One parsed expression."""

    text: str
    refs: tuple[Ref, ...]
    is_dotted: bool
    """Only a dotted reference: read without compiling."""
    source: str
    """As Jinja reads it."""

    @cached_property
    def _compiled(self) -> Any:
        return ENVIRONMENT.compile_expression(self.source, undefined_to_none=False)

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """The value with `names` in scope.

        Raises:
            ExpressionError: ``plan.undefined-value``, ``plan.expression``.
        """
        try:
            value = self._dotted(names) if self.is_dotted else self._compiled(**names)
            return as_json(value, self.text)
        except (ExpressionError, ColdSnapError):
            raise
        except TemplateError as error:
            raise ExpressionError(
                "plan.undefined-value" if isinstance(error, UndefinedError) else "plan.expression",
                f"{shown(self.text)}: {str(error)[:200]}",
            ) from error
        except _EVALUATION as error:
            raise ExpressionError(
                "plan.expression", f"{shown(self.text)}: {str(error)[:200]}"
            ) from error

    def _dotted(self, names: Mapping[str, Any]) -> Any:
        value: Any = names
        for part in self.refs[0]:
            value = lookup(value, part)
            if isinstance(value, Undefined):
                raise ExpressionError(
                    "plan.undefined-value", f"{shown(self.text)}: there is no {shown(str(part))}"
                )
        return value


_EVALUATION = (
    ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError,
    MemoryError,
)  # fmt: skip


@dataclass(frozen=True)
class Parsed:
    """A text with expressions in it."""

    parts: tuple[str | Expression, ...]

    @property
    def refs(self) -> tuple[Ref, ...]:
        return tuple(
            ref for part in self.parts if isinstance(part, Expression) for ref in part.refs
        )

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        if len(self.parts) == 1 and isinstance(self.parts[0], Expression):
            return self.parts[0].evaluate(names)
        text = "".join(
            part if isinstance(part, str) else as_text(part.evaluate(names)) for part in self.parts
        )
        if len(text) > MAX_RESULT:
            raise ExpressionError("plan.expression", f"a text of {len(text):,} characters")
        return text


@lru_cache(maxsize=4096)
def parse_text(text: str) -> Parsed | None:
    """The parts of a text, or None if it holds no expression.

    Raises:
        ExpressionError: ``plan.expression``, ``plan.unknown-name``.
    """
    if "{%" in text and "%}" in text:
        raise ExpressionError(
            "plan.expression", "statements ({% %}) are not allowed, only {{ values }}"
        )
    if "{{" not in text:
        return None
    return Parsed(tuple(_parts(text)))


@lru_cache(maxsize=1024)
def parse_condition(text: str) -> Parsed:
    """A ``when``: an expression with or without its braces.

    Raises:
        ExpressionError: as `parse_text`; also if there is text around the braces.
    """
    parsed = parse_text(text)
    if parsed is None:
        return Parsed((parse_expression(text.strip()),))
    parts = [part for part in parsed.parts if not isinstance(part, str) or part.strip()]
    if len(parts) != 1 or isinstance(parts[0], str):
        raise ExpressionError("plan.expression", "when must be one expression")
    return Parsed((parts[0],))


def _parts(text: str) -> Iterator[str | Expression]:
    position = 0
    while (start := text.find("{{", position)) >= 0:
        if start > position:
            yield text[position:start]
        end = _end(text, start + 2)
        yield parse_expression(text[start + 2 : end].strip())
        position = end + 2
    if position < len(text):
        yield text[position:]


def _end(text: str, position: int) -> int:
    """Index of the ``}}`` that closes an expression, minding quotes and braces in it."""
    depth, quote, limit = 0, "", min(len(text), position + MAX_EXPRESSION + 2)
    while position < limit:
        char = text[position]
        if quote:
            if char == "\\":
                position += 1
            elif char == quote:
                quote = ""
        elif char in "\"'":
            quote = char
        elif char in "{[(":
            depth += 1
        elif char in "}])":
            if depth == 0 and text.startswith("}}", position):
                return position
            depth -= 1
        position += 1
    if position < len(text):
        raise ExpressionError(
            "plan.expression", f"an expression may have {MAX_EXPRESSION} characters"
        )
    raise ExpressionError("plan.expression", "{{ is not closed by }}")


def parse_expression(text: str) -> Expression:
    """Parse one expression, without braces.

    Raises:
        ExpressionError: ``plan.expression``, ``plan.unknown-name``.
    """
    if not text or len(text) > MAX_EXPRESSION:
        raise ExpressionError("plan.expression", "an expression is empty or too long")
    if _DOTTED.fullmatch(text) and text.split(".", 1)[0] in ROOTS:
        return Expression(text, (tuple(text.split(".")),), is_dotted=True, source=text)
    # steps.my-id.outputs would be a subtraction; ids are names here.
    source = _STEP.sub(lambda m: m[1] or f"steps['{m[2]}']", text)
    try:
        tree = ENVIRONMENT.parse_value(source)
        refs = tuple(_references(tree))
    except (TemplateError, RecursionError, ValueError, MemoryError) as error:
        reason = getattr(error, "message", None) or str(error) or "nested too deeply"
        reason = " ".join(reason.split())[:200]
        raise ExpressionError("plan.expression", f"{shown(text)}: {reason}") from error
    return Expression(text, refs, is_dotted=False, source=source)


def _references(tree: nodes.Node) -> Iterator[Ref]:
    """References in a tree; checks that the tree holds nothing but values."""
    if not isinstance(tree, _ALLOWED):
        what, remedy = _REFUSED.get(type(tree), (f"{type(tree).__name__} expressions", ""))
        raise ExpressionError("plan.expression", f"{what} are not allowed", remedy)
    if isinstance(tree, nodes.Filter) and tree.name not in FILTERS:
        raise ExpressionError(
            "plan.expression", f"unknown filter {shown(tree.name)}", _meant(tree.name, FILTERS)
        )
    if isinstance(tree, nodes.Test) and tree.name not in TESTS:
        raise ExpressionError(
            "plan.expression", f"unknown test {shown(tree.name)}", _meant(tree.name, TESTS)
        )
    reference = _chain(tree)
    if reference is not None:
        if reference[0] not in ROOTS:
            raise ExpressionError(
                "plan.unknown-name",
                f"unknown name {shown(str(reference[0]))}",
                _meant(str(reference[0]), ROOTS) or f"expressions see {', '.join(sorted(ROOTS))}",
            )
        yield reference
        return
    for child in tree.iter_child_nodes():
        yield from _references(child)


def _meant(name: str, known: Any) -> str:
    meant = near(name, known)
    return f'did you mean "{meant}"?' if meant else ""


def _chain(tree: nodes.Node) -> Ref | None:
    """``steps.a.outputs["x"]`` as a tuple; None if the tree is no such chain."""
    parts: list[str | int] = []
    while True:
        if isinstance(tree, nodes.Getattr):
            parts.append(tree.attr)
            tree = tree.node
        elif (
            isinstance(tree, nodes.Getitem)
            and isinstance(tree.arg, nodes.Const)
            and isinstance(tree.arg.value, (str, int))
        ):
            parts.append(tree.arg.value)
            tree = tree.node
        elif isinstance(tree, nodes.Name):
            parts.append(tree.name)
            return tuple(reversed(parts))
        else:
            return None
