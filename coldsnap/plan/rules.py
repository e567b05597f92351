"""What the patterns of our own types mean, in words: a person reads no regular expression."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from coldsnap.plan.language import StepId, VariableName
from coldsnap.sdk.spec import Duration, Size
from coldsnap.sdk.topology import EnvName, Id


def rule_of(pattern: Any) -> str:
    """What a known pattern means, in words; empty for others."""
    return _rules().get(pattern, "") if isinstance(pattern, str) else ""


@cache
def _rules() -> dict[str, str]:
    name = "letters, digits and _, not starting with a digit"
    plain = "letters, digits, - and _, starting with a letter or digit, at most 64"
    words = {Duration: "", Size: "", StepId: plain, VariableName: name, EnvName: name}
    words |= {Id: "letters, digits, ., - and _, starting with a letter or digit, at most 128"}
    rules: dict[str, str] = {}
    for kind, text in words.items():
        schema = TypeAdapter(kind).json_schema()
        for branch in schema.get("anyOf", [schema]):
            if "pattern" in branch:
                rules[branch["pattern"]] = text or str(schema["description"])
    return rules


def names_rule(patterns: Iterable[str]) -> str:
    """What a name must be that has to match one of the patterns."""
    return next(filter(None, map(rule_of, patterns)), "") or f"it must match {next(iter(patterns))}"
