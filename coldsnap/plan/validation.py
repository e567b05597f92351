"""Checking data against a JSON Schema and against typed models, with the place of every error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError as SchemaError
from pydantic import ValidationError

from coldsnap.plan.problems import MAX_PROBLEMS, Problems, shown
from coldsnap.plan.report import Checked, Report, Violation

_PREFIX = re.compile(r"^(Value error|Assertion failed), ")
_SHOULD = re.compile(r"^(Input|String|Value|Tuple|List) should")
_TYPED = {
    "string_type": "text",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a map",
    "model_type": "a map",
}


def check_schema(
    validator: Draft202012Validator, data: Any, checked: Checked, problems: Problems
) -> None:
    """Add every violation of the schema to `problems`."""
    for count, error in enumerate(validator.iter_errors(data)):
        if count >= MAX_PROBLEMS:
            return
        Report(checked, problems).add(_violation(_deepest(error)))


def check_typed(error: ValidationError, checked: Checked, problems: Problems) -> None:
    """Add what a pydantic model found."""
    report = Report(checked, problems)
    for found in error.errors(include_url=False, include_context=False):
        path = (*checked.base, *found["loc"])
        code, message = typed_message(found)
        problems.add(code, f"{report.field(path)}: {message}", report.source(path))


def typed_message(found: Mapping[str, Any]) -> tuple[str, str]:
    """Code and message of one error of a pydantic model."""
    expected = _TYPED.get(found["type"])
    if expected:
        return "plan.wrong-type", f"must be {expected}, not {shown(found['input'])}"
    message = _PREFIX.sub("", found["msg"])
    return "plan.wrong-value", _SHOULD.sub("must", message)


def _deepest(error: SchemaError) -> SchemaError:
    """Of a failed alternative, the branch that got furthest, if one went into the value."""
    while error.validator == "anyOf" and error.context:
        inner = max(error.context, key=lambda each: len(each.absolute_path))
        if len(inner.absolute_path) == len(error.absolute_path):
            return error
        error = inner
    return error


def _violation(error: SchemaError) -> Violation:
    schema = error.schema
    return Violation(
        rule=str(error.validator),
        bound=error.validator_value,
        value=error.instance,
        schema=schema if isinstance(schema, Mapping) else {},
        path=tuple(error.absolute_path),
        message=error.message,
    )
