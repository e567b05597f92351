from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_pack import demo_registry

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.plan.document import parse_document
from coldsnap.plan.loading import load_text
from coldsnap.plan.variables import Given

REGISTRY = demo_registry()
NOTHING = Given(environment={})


def parse(text):
    return parse_document(text.encode(), "x.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.10", 1.1),
        ("'1.10'", "1.10"),
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("y", "y"),
        ("true", True),
        ("True", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-3", -3),
        ("+3", 3),
        ("0o17", 15),
        ("017", 17),
        ("0x1f", 31),
        ("1_000", "1_000"),
        ("12:30:00", "12:30:00"),
        ("2026-11-30", "2026-11-30"),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("-", None),
        ("3 apples", "3 apples"),
        ("!!str 12", "12"),
        ("!!float 12", 12.0),
        ("! 12", "12"),
        ('"\\u00e9"', "é"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text, value):
    result = parse(f"a: {text}\n").data["a"] if text != "-" else parse("- \n").data[0]
    assert result == value
    assert type(result) is type(value)


def test_every_node_has_its_place():
    document = parse("a:\n  - b: 1\n    c: [x, 'yy']\n# note\nd: |\n  text\n")
    place = document.source
    assert (place(("a", 0, "b")).line, place(("a", 0, "b")).column) == (2, 8)
    key = place(("a", 0, "c"), key=True)
    assert (key.line, key.column, key.width, key.text, key.before) == (
        3,
        5,
        1,
        "    c: [x, 'yy']",
        "  - b: 1",
    )
    item = place(("a", 0, "c", 1))
    assert (item.line, item.column, item.width) == (3, 12, 4)
    assert place(("a", 0, "none")).line == 2, "the nearest place that exists"
    assert place(("d",)).line == 5


def test_windows_line_ends_and_a_byte_order_mark():
    document = parse_document(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n", "x.yaml")
    assert document.data == {"a": 1, "b": 2}
    assert document.source(("b",)).line == 2
    assert document.source(("b",)).text == "b: 2"


def test_aliases_are_values_at_their_own_place():
    document = parse("a: &x {k: [1]}\nb: *x\n")
    assert document.data == {"a": {"k": [1]}, "b": {"k": [1]}}
    assert document.source(("b",)).line == 2


def test_the_digest_is_of_the_bytes():
    one, two = parse("a: 1\n"), parse("a: 1 # note\n")
    assert one.data == two.data
    assert one.sha256 != two.sha256
    assert one.sha256.startswith("sha256:")


def _codes(call):
    """Areas of the errors of a call; none if it succeeds. Anything else is raised."""
    try:
        call()
    except ColdSnapError as error:
        everything = (error, *error.more)
        assert all(0 < len(each.message) < 1000 for each in everything)
        return {each.code[:5] for each in everything}
    return set()


@settings(max_examples=300, deadline=4000)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_give_a_document_or_a_coldsnap_error(content):
    assert _codes(lambda: parse_document(content, "x.yaml")) <= {"plan."}


_PIECES = st.sampled_from(
    ["coldsnap: plan/v1", "name: x", "steps:", "vars:", "units:", "engine: demo", "with:", "- ",
     "  ", "    ", "\n", "id: a", "type: demo.probe", "uses: demo.capture", "needs: [a]", "{", "}",
     "[", "]", ":", ",", "&a ", "*a", "!x ", "!!int ", "'", '"', "|", ">", "#", "{{ vars.x }}", "%",
     "---", "...", "?", "\t", "<<: ", "é", "\u2028", "\x85", "@", "`", "1.5", "null", "when: ",
     "retry: {attempts: 2}", "model: {id: m, path: /m}", "hosts: ", "driver: "]
)  # fmt: skip


@settings(max_examples=500, deadline=4000)
@given(st.lists(_PIECES, max_size=30).map("".join))
def test_arbitrary_yaml_gives_a_plan_or_a_coldsnap_error(text):
    assert _codes(lambda: load_text(text, REGISTRY, NOTHING)) <= {"plan."}


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(
        ["", "a", "demo.probe", "{{ vars.x }}", "{{ host.name }}", "{{", "30s", "all"]
    )
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
_STEP = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["a", "b", "c"]) | _JSON,
        "type": st.sampled_from(["demo.probe", "demo.ask", "demo.note"]) | _JSON,
        "uses": st.sampled_from(["demo.capture", "demo.twice"]) | _JSON,
        "needs": st.lists(st.sampled_from(["a", "b", "c"])) | _JSON,
        "hosts": _JSON,
        "when": _JSON,
        "timeout": _JSON,
        "retry": st.fixed_dictionaries({}, optional={"attempts": _JSON, "delay": _JSON}) | _JSON,
        "on_failure": _JSON,
        "with": st.fixed_dictionaries({}, optional={"prompt": _JSON, "count": _JSON, "text": _JSON})
        | _JSON,
    },
)
_PLAN = st.fixed_dictionaries(
    {"coldsnap": st.just("plan/v1"), "name": st.just("x"), "steps": st.lists(_STEP, max_size=4)},
    optional={
        "vars": st.fixed_dictionaries(
            {"x": st.fixed_dictionaries({"type": st.just("int")}, optional={"default": _JSON})}
        ),
        "engine": st.just("demo") | _JSON,
        "driver": _JSON,
        "store": _JSON,
        "model": st.fixed_dictionaries({"id": _JSON}, optional={"path": _JSON}) | _JSON,
        "units": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "id": _JSON,
                    "command": _JSON,
                    "env": _JSON,
                    "ports": _JSON,
                    "mounts": _JSON,
                    "devices": _JSON,
                },
            ),
            max_size=2,
        )
        | _JSON,
        "workers": _JSON,
        "groups": _JSON,
        "services": _JSON,
    },
)


@settings(max_examples=500, deadline=4000)
@given(_PLAN)
def test_arbitrary_values_in_a_plan_give_a_plan_or_a_coldsnap_error(value):
    assert _codes(lambda: load_text(json.dumps(value), REGISTRY, NOTHING)) <= {"plan."}
