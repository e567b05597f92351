from __future__ import annotations

import hashlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldsnap.artifact.canonical import MAX_DEPTH, digest, dumps
from coldsnap.artifact.errors import ColdSnapError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": {"d": [], "c": None}}, '{"a":{"c":null,"d":[]},"b":1}'),
        ([-0.0, 1e16, 1e-4, 0.5, 100.0], "[-0.0,1e+16,0.0001,0.5,100.0]"),
        (2**70, "1180591620717411303424"),
        ('é\U0001f600\ud800"\n', '"\\u00e9\\ud83d\\ude00\\ud800\\"\\n"'),
        ((True, False, None), "[true,false,null]"),
    ],
)
def test_text_is_the_one_documented(value: object, text: str) -> None:
    assert dumps(value) == text
    assert digest(value) == "sha256:" + hashlib.sha256(text.encode()).hexdigest()


@given(JSON)
def test_reading_back_gives_the_value_and_the_same_text(value: object) -> None:
    text = dumps(value)
    assert json.loads(text) == value
    assert dumps(json.loads(text)) == text
    assert text.isascii()


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": [1, math.nan]}, "/a/1"),
        ({"a": math.inf}, "/a"),
        ({1: 2}, "/"),
        ({"a": {"b": object()}}, "/a/b"),
        ({"a": b"bytes"}, "/a"),
    ],
)
def test_what_has_no_json_form_is_named(value: object, place: str) -> None:
    with pytest.raises(ColdSnapError) as caught:
        dumps(value)
    assert caught.value.code == "canonical.invalid"
    assert f" {place}:" in caught.value.message


def test_depth_and_cycles_end_in_an_error() -> None:
    deep: list[object] = []
    for _ in range(MAX_DEPTH + 5):
        deep = [deep]
    cycle: dict[str, object] = {}
    cycle["self"] = cycle
    for value in (deep, cycle, 10**5000):
        with pytest.raises(ColdSnapError):
            dumps(value)
