"""Variables: declared in the plan, given by flag, file or environment, else their default.

Strongest first: ``--var``, ``--var-file`` (the last file wins), ``COLDSNAP_VAR_<NAME>``, default.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coldsnap.artifact.errors import ColdSnapError, Source
from coldsnap.plan.document import Document, parse_document, read_document
from coldsnap.plan.language import VariableDoc
from coldsnap.plan.model import Origin, Variable, VariableType
from coldsnap.plan.problems import Problems, hint, shown
from coldsnap.plan.scalars import plain

ENV_PREFIX = "COLDSNAP_VAR_"

_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "string": ("text", (str,)),
    "path": ("a file name", (str,)),
    "int": ("an integer", (int,)),
    "float": ("a number", (int, float)),
    "bool": ("true or false", (bool,)),
    "list": ("a list", (list,)),
    "map": ("a map", (dict,)),
}


@dataclass(frozen=True)
class Given:
    """Values for variables from outside the plan."""

    flags: Sequence[str] = ()
    """``name=value``, as on the command line; the last of a name wins."""
    files: Sequence[str | Path] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    folder: Path = field(default_factory=Path.cwd)
    """Where relative paths in flags and in the environment start."""


@dataclass(frozen=True)
class _Value:
    raw: Any
    is_text: bool
    """Text from a command line or environment, still to be parsed."""
    origin: Origin
    place: str
    folder: Path
    source: Source | None


def resolve_variables(
    declared: Mapping[str, VariableDoc], given: Given, document: Document, problems: Problems
) -> dict[str, Variable]:
    """The value of every declared variable; what is wrong is added to `problems`."""
    values = _collect(declared, given, problems)
    resolved: dict[str, Variable] = {}
    for name, declaration in declared.items():
        found = values.get(name) or _default(name, declaration, document)
        if found is None:
            problems.add(
                "plan.missing-variable",
                f"the variable {shown(name)} has no value",
                document.source(("vars", name), key=True),
                cause=declaration.description,
                remedy=f"give it: --var {name}=..., or a default",
            )
            continue
        try:
            value = _typed(name, declaration, found)
        except ValueError as error:
            problems.add("plan.wrong-variable", str(error), found.source)
            continue
        resolved[name] = Variable(
            name, declaration.type, value, found.origin, found.place, declaration.description
        )
    return resolved


def check_value(what: str, declared: VariableDoc, value: Any) -> None:
    """Check a value against a declaration's type and enum; null only where it is the default.

    Raises:
        ValueError: with a message that starts with `what`.
    """
    if value is None and "default" in declared.model_fields_set and declared.default is None:
        return
    expected, types = _KINDS[declared.type]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise ValueError(f"{what} must be {expected}, not {shown(value)}")
    if declared.enum is not None and value not in declared.enum:
        allowed = ", ".join(shown(each) for each in declared.enum)
        raise ValueError(f"{what} must be one of {allowed}; not {shown(value)}")


def check_declaration(
    name: str,
    declared: VariableDoc,
    document: Document,
    path: tuple[str | int, ...],
    problems: Problems,
) -> None:
    """Check that the default and the allowed values fit the type."""
    plain_type = declared.model_copy(update={"enum": None})
    for index, value in enumerate(declared.enum or ()):
        try:
            check_value(f"enum of {shown(name)}", plain_type, value)
        except ValueError as error:
            problems.add("plan.wrong-type", str(error), document.source((*path, "enum", index)))
    if "default" not in declared.model_fields_set:
        return
    source = document.source((*path, "default"))
    try:
        check_value(f"the default of {shown(name)}", declared, declared.default)
    except ValueError as error:
        problems.add("plan.wrong-type", str(error), source)
    if "{{" in str(declared.default):
        problems.add(
            "plan.expression", f"the default of {shown(name)} is a constant, no expression", source
        )


def _collect(
    declared: Mapping[str, VariableDoc], given: Given, problems: Problems
) -> dict[str, _Value]:
    values: dict[str, _Value] = {}
    for name in declared:
        for variable in (ENV_PREFIX + name, ENV_PREFIX + name.upper()):
            if variable in given.environment:
                text = given.environment[variable]
                values[name] = _Value(text, True, Origin.ENV, variable, given.folder, None)
                break
    for file in given.files:
        values.update(_from_file(file, declared, problems))
    for flag in given.flags:
        name, separator, text = flag.partition("=")
        if not separator:
            problems.add(
                "plan.wrong-variable",
                f"--var {shown(flag)} has no value",
                remedy="write --var name=value",
            )
        elif name not in declared:
            problems.add(
                "plan.unknown-variable",
                f"the plan has no variable {shown(name)}",
                remedy=hint(name, declared) or "it declares none",
            )
        else:
            values[name] = _Value(text, True, Origin.FLAG, "--var", given.folder, None)
    return values


def _from_file(
    file: str | Path, declared: Mapping[str, VariableDoc], problems: Problems
) -> dict[str, _Value]:
    try:
        document = read_document(file)
    except ColdSnapError as error:
        problems.keep(error)
        return {}
    data = document.data
    if not isinstance(data, dict):
        problems.add(
            "plan.wrong-type",
            f"{file} must be a map of variables, not {shown(data)}",
            document.source(()),
        )
        return {}
    values: dict[str, _Value] = {}
    for name, raw in data.items():
        if name not in declared:
            problems.add(
                "plan.unknown-variable",
                f"the plan has no variable {shown(name)}",
                document.source((name,), key=True),
                remedy=hint(name, declared) or "it declares none",
            )
            continue
        source = document.source((name,))
        folder = Path(file).absolute().parent
        values[name] = _Value(raw, False, Origin.FILE, str(file), folder, source)
    return values


def _default(name: str, declared: VariableDoc, document: Document) -> _Value | None:
    if "default" not in declared.model_fields_set:
        return None
    folder = Path(document.file).absolute().parent
    source = document.source(("vars", name, "default"))
    return _Value(declared.default, False, Origin.DEFAULT, "", folder, source)


def _typed(name: str, declared: VariableDoc, found: _Value) -> Any:
    what = f"the variable {shown(name)}"
    if found.place:
        what += f" (from {found.place})"
    value = found.raw
    if found.is_text:
        value = _parse(what, declared.type, found.raw)
    check_value(what, declared, value)
    if declared.type == "path" and value is not None:
        if "\0" in value:
            raise ValueError(f"{what} must be a file name, not {shown(value)}")
        return os.path.normpath(found.folder / Path(value).expanduser()) if value else value
    if declared.type == "float" and value is not None:
        return float(value)
    return value


def _parse(what: str, kind: VariableType, text: str) -> Any:
    """A value from text: as it is for text, by YAML's rules for the rest."""
    if kind in ("string", "path"):
        return text
    if kind in ("list", "map"):
        try:
            return parse_document(text.encode("utf-8", "surrogateescape"), what).data
        except ColdSnapError as error:
            raise ValueError(f"{what} must be {_KINDS[kind][0]}: {error.message}") from error
    try:
        value = plain(text.strip())
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error
    if kind == "bool" and text.strip() in ("0", "1"):
        return text.strip() == "1"
    return value
