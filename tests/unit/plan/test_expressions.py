from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldsnap.plan.expressions import MAX_EXPRESSION, parse_condition, parse_text
from coldsnap.plan.sandbox import FILTERS
from coldsnap.plan.values import ExpressionError

NAMES = {
    "vars": {
        "a": 1,
        "s": "text",
        "items": [1, 2, 2],
        "keys": "not a method",
        "m": {"k": True, "n": None},
        "nested": [{"x": 5}],
    },
    "steps": {"my-id": {"outputs": {"free": 7}}, "p": {"outputs": {"free": 8}}},
    "model": {"id": "m"},
    "plan": {},
    "host": {},
    "unit": {},
    "inputs": {},
}


def value(text):
    parsed = parse_text(text)
    return text if parsed is None else parsed.evaluate(NAMES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("{ a } and }}", "{ a } and }}"),
        ("{{ vars.a }}", 1),
        ("  {{ vars.a }}", "  1"),
        ("{{vars.a}}", 1),
        ("{{ vars.m }}", {"k": True, "n": None}),
        ("{{ vars.items }}", [1, 2, 2]),
        ("{{ vars.keys }}", "not a method"),
        ("{{ vars.nested[0].x }}", 5),
        ("{{ vars['a'] }}", 1),
        ("{{ true }}", True),
        ("{{ none }}", None),
        ("x {{ vars.a }}/{{ vars.m.k }}", "x 1/true"),
        ("x {{ vars.items }}", "x [1,2,2]"),
        ("{{ steps.my-id.outputs.free }}", 7),
        ("{{ steps.my-id.outputs.free + steps.p.outputs.free }}", 15),
        ("{{ steps['my-id'].outputs.free }}", 7),
        ("{{ 'steps.my-id.outputs' }}", "steps.my-id.outputs"),
        ("{{ vars.a + 1 }}", 2),
        ("{{ 7 // 2 }}{{ 7 % 2 }}", "31"),
        ("{{ 'x' if vars.m.k else 'y' }}", "x"),
        ("{{ vars.none | default(3) }}", 3),
        ("{{ vars.m.n | default(3) }}", None),
        ("{{ vars.none is defined }}", False),
        ("{{ 2 in vars.items }}", True),
        ("{{ {'a': {'b': 1}} }}", {"a": {"b": 1}}),
        ("{{ '}}' }}", "}}"),
        ("{{ '{{' }}", "{{"),
        ('{{ "it\'s" }}', "it's"),
        ("{{ vars.s | upper }}", "TEXT"),
        ("{{ vars.items | unique | join(',') }}", "1,2"),
        ("{{ vars.items | sum }}", 5),
        ("{{ vars.items | length }}", 3),
        ("{{ '/a/b' | basename }}", "b"),
        ("{{ '12' | int }}", 12),
        ("{{ vars.a | string }}", "1"),
        ("{{ vars.m | tojson }}", '{"k":true,"n":null}'),
        ("{{ vars.items | first }}{{ vars.items | last }}", "12"),
        ("{{ 'true' | bool }}", True),
        ("{{ 2.6 | round }}", 3),
        ("{{ (1, 2) }}", [1, 2]),
    ],
)
def test_values(text, expected):
    result = value(text)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("{{ vars.none }}", "plan.undefined-value", 'there is no "none"'),
        ("{{ vars.none.x | default(1) }} {{ vars.a.b.c }}", "plan.undefined-value", "a.b.c"),
        ("{{ vars.items[9] }}", "plan.undefined-value", "not defined"),
        ("{{ vars.none + 1 }}", "plan.undefined-value", "there is no 'none'"),
        ("{{ vars.none | upper }}", "plan.undefined-value", "there is no 'none'"),
        ("{{ foo }}", "plan.unknown-name", 'unknown name "foo"'),
        ("{{ self }}", "plan.unknown-name", "self"),
        ("{{ range(3) }}", "plan.expression", "calls are not allowed"),
        ("{{ vars.s.upper() }}", "plan.expression", "calls are not allowed"),
        ("{{ vars.s.__class__ }}", "plan.undefined-value", "__class__"),
        ("{{ ''.__class__.__mro__ }}", "plan.undefined-value", "__mro__"),
        ("{{ vars.__init__ }}", "plan.undefined-value", "__init__"),
        ("{{ vars.s ~ 'x' }}", "plan.expression", "~ operators are not allowed"),
        ("{{ vars.items[1:] }}", "plan.expression", "slices are not allowed"),
        ("{{ vars.s | lowr }}", "plan.expression", 'unknown filter "lowr"'),
        ("{{ vars.s | attr('x') }}", "plan.expression", 'unknown filter "attr"'),
        ("{{ vars.s is callable }}", "plan.expression", 'unknown test "callable"'),
        ("{{ 'a' * 1000000000 }}", "plan.expression", "too large"),
        ("{{ [1] * 1000000000 }}", "plan.expression", "too large"),
        ("{{ 1000000000 * 'a' }}", "plan.expression", "too large"),
        ("{{ 10 ** 10 ** 10 ** 10 }}", "plan.expression", "too large"),
        ("{{ 2 ** 5000 }}", "plan.expression", "too large"),
        ("{{ 2 ** -99999 }}", "plan.expression", "too large"),
        ("{{ '%1000000000d' % 1 }}", "plan.expression", "not allowed"),
        ("{{ ('x' * 60000) | replace('x', 'y' * 60000) }}", "plan.expression", "too large"),
        ("{{ ('x' * 60000) | list }}", "plan.expression", "too large"),
        ("{{ 1 / 0 }}", "plan.expression", "division by zero"),
        ("{{ 'a' + 1 }}", "plan.expression", "can only concatenate"),
        ("{{ vars.s | sum }}", "plan.expression", "unsupported operand"),
        ("{{ vars.a", "plan.expression", "not closed"),
        ("{{ }}", "plan.expression", "empty"),
        ("{{ vars.a, 2 }}", "plan.expression", "text after the expression"),
        ("{{ vars.a }} {% if x %}", "plan.expression", "statements"),
        ("x {{ vars.m.n }}", "plan.expression", "null"),
        ("{{ " + "(" * 900 + ")" * 900 + " }}", "plan.expression", ""),
        ("{{ " + "not " * 480 + "true }}", "plan.expression", ""),
        ("{{ " + "a" * MAX_EXPRESSION + "a }}", "plan.expression", ""),
        ("{{ " + "a" * 100_000, "plan.expression", "characters"),
    ],
)
def test_what_is_refused(text, code, message):
    start = time.process_time()
    with pytest.raises(ExpressionError) as caught:
        value(text)
    assert time.process_time() - start < 2
    assert caught.value.code == code
    assert message in caught.value.message
    assert len(caught.value.message) < 400
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("text", ["vars.a == 1", "{{ vars.a == 1 }}", " {{ vars.a == 1 }} "])
def test_a_condition_takes_braces_or_none(text):
    assert parse_condition(text).evaluate(NAMES) is True


@pytest.mark.parametrize("text", ["", "a b", "x {{ vars.a }}", "{{ vars.a }}{{ vars.a }}"])
def test_a_condition_is_one_expression(text):
    with pytest.raises(ExpressionError):
        parse_condition(text)


def test_references_are_found():
    parsed = parse_text(
        "{{ steps.a-b.outputs.x[0].y or vars['k'] }} {{ host.vars.z | default(unit.id) }}"
    )
    assert parsed.refs == (
        ("steps", "a-b", "outputs", "x", 0, "y"),
        ("vars", "k"),
        ("host", "vars", "z"),
        ("unit", "id"),
    )


_WORDS = st.sampled_from(
    ["vars.a", "vars.s", "vars.items", "vars.m", "steps.p.outputs.free", "1", "2.5", "'x'", "none",
     "[", "]", "(", ")", "{", "}", ",", ":", "+", "-", "*", "**", "/", "//", "%", "~", "|", ".",
     "is", "in", "not", "and", "or", "if", "else", "==", "<", "defined", *sorted(FILTERS), "{{",
     "}}", "{%", "'", '"', "\\", "\n", "9" * 30]
)  # fmt: skip


@settings(max_examples=400, deadline=2000)
@given(st.lists(_WORDS, max_size=14).map(" ".join))
def test_no_expression_gives_anything_but_a_value_or_its_error(text):
    for source in (text, "{{ " + text + " }}"):
        try:
            result = value(source)
        except ExpressionError:
            continue
        assert result is None or isinstance(result, (str, int, float, bool, list, dict))


@settings(max_examples=200, deadline=2000)
@given(st.text(max_size=60))
def test_arbitrary_text_as_an_expression(text):
    with suppress(ExpressionError):
        value("{{" + text + "}}")
