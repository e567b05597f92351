"""What is wrong in a template's step is shown where the user's plan gave the value."""

from __future__ import annotations

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.plan.loading import load_text
from coldsnap.plan.registry import Registry
from coldsnap.plan.variables import Given

PLAN = """\
coldsnap: plan/v1
name: mine
vars: {{wait: {{type: string, default: soon}}}}
engine: reference
model: {{id: m, path: /m}}
units: [{{id: u0}}]
steps:
  - uses: reference.capture
    with:
      name: demo
      prompts: {prompts}
      hold: {hold}
"""


def errors(**given: str) -> list[ColdSnapError]:
    text = PLAN.format(**{"prompts": "[Once]", "hold": "5m", **given})
    with pytest.raises(ColdSnapError) as raised:
        load_text(text, Registry.installed(), Given(environment={}), path="mine.yaml")
    return [raised.value, *raised.value.more]


def test_the_users_line_is_shown_and_the_templates_is_named() -> None:
    (error,) = errors(hold="soon")
    assert error.source is not None
    assert (error.source.file, error.source.line, error.source.column) == ("mine.yaml", 12, 13)
    assert "'soon' is not a duration" in error.message
    (used,) = error.details
    assert used.startswith("used by ")
    assert "capture.yaml:" in used


def test_places_inside_of_what_was_given_are_found() -> None:
    found = {error.source.column for error in errors(prompts="[Once, 7]") if error.source}
    assert 23 in found, "the 7"


def test_a_value_by_a_variable_is_shown_where_the_variable_is_used() -> None:
    (error,) = errors(hold='"{{ vars.wait }}"')
    assert error.source is not None
    assert error.source.line == 12
