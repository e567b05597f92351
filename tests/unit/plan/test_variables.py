from __future__ import annotations

from pathlib import Path

import pytest
from plan_pack import found

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.plan.loading import load_plan, load_text
from coldsnap.plan.model import Origin
from coldsnap.plan.variables import Given

PLAN = """\
coldsnap: plan/v1
name: x
vars:
  text: {type: string, default: a}
  count: {type: int, default: 1}
  ratio: {type: float, default: 1}
  flag: {type: bool, default: false}
  items: {type: list, default: []}
  table: {type: map, default: {}}
  file: {type: path, default: models/x}
  level: {type: string, default: fast, enum: [fast, full]}
  maybe: {type: int, default: null}
steps:
  - {id: a, type: demo.note, with: {text: "{{ vars.text }}"}}
"""


def load(registry, flags=(), files=(), environment=None, folder=Path("/base")):
    given = Given(flags, files, environment or {}, folder)
    return load_text(PLAN, registry, given, path="/plans/p.yaml").variables


def test_the_strongest_source_wins_and_is_remembered(registry, tmp_path):
    one, two = tmp_path / "one.yaml", tmp_path / "two.json"
    one.write_text("text: one\ncount: 11\nratio: 0.5\n")
    two.write_text('{"count": 12}')
    environment = {"COLDSNAP_VAR_TEXT": "env", "COLDSNAP_VAR_flag": "true", "COLDSNAP_VAR_NO": "1"}
    variables = load(registry, ["count=13", "count=14"], [one, two], environment)
    assert {name: (v.value, v.origin) for name, v in variables.items()} == {
        "text": ("one", Origin.FILE),
        "count": (14, Origin.FLAG),
        "ratio": (0.5, Origin.FILE),
        "flag": (True, Origin.ENV),
        "items": ([], Origin.DEFAULT),
        "table": ({}, Origin.DEFAULT),
        "file": ("/plans/models/x", Origin.DEFAULT),
        "level": ("fast", Origin.DEFAULT),
        "maybe": (None, Origin.DEFAULT),
    }
    assert variables["text"].place == str(one)
    assert variables["flag"].place == "COLDSNAP_VAR_flag"


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("text=12", "12"),
        ("text=a=b", "a=b"),
        ("text=", ""),
        ("text={{ vars.count }}", "{{ vars.count }}"),
        ("count=-3", -3),
        ("count=0x10", 16),
        ("ratio=2", 2.0),
        ("ratio=1e3", 1000.0),
        ("flag=true", True),
        ("flag=0", False),
        ("items=[1, b]", [1, "b"]),
        ("table={a: {b: 1}}", {"a": {"b": 1}}),
        ("file=m", "/base/m"),
        ("file=../m", "/m"),
        ("file=/abs/", "/abs"),
        ("maybe=3", 3),
    ],
)
def test_flags_are_read_by_the_declared_type(registry, flag, value):
    variable = load(registry, [flag])[flag.split("=")[0]]
    assert variable.value == value
    assert type(variable.value) is type(value)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("count=many", 'the variable "count" (from --var) must be an integer, not "many"'),
        ("count=1.5", 'the variable "count" (from --var) must be an integer, not 1.5'),
        ("count=true", 'the variable "count" (from --var) must be an integer, not true'),
        ("ratio=x", 'the variable "ratio" (from --var) must be a number, not "x"'),
        ("flag=yes", 'the variable "flag" (from --var) must be true or false, not "yes"'),
        ("items=a", 'the variable "items" (from --var) must be a list, not "a"'),
        ("items=[", 'the variable "items" (from --var) must be a list: expected the node content'),
        ("table=[1]", 'the variable "table" (from --var) must be a map, not a list'),
        (
            "level=slow",
            'the variable "level" (from --var) must be one of "fast", "full"; not "slow"',
        ),
        ("count=", 'the variable "count" (from --var) must be an integer, not null'),
        ("cont=3", 'the plan has no variable "cont"'),
        ("count", '--var "count" has no value'),
        ("count=" + "9" * 5000, 'the variable "count" (from --var): a number of 5000 digits'),
    ],
)
def test_a_wrong_flag_is_refused(registry, flag, message):
    with pytest.raises(ColdSnapError) as caught:
        load(registry, [flag])
    assert caught.value.message.startswith(message)


def test_a_near_name_is_suggested(registry):
    with pytest.raises(ColdSnapError) as caught:
        load(registry, ["cout=3"])
    assert found(caught.value) == [
        'plan.unknown-variable - the plan has no variable "cout" -> did you mean "count"?'
    ]


def test_mistakes_in_a_variable_file_have_their_place(registry, tmp_path):
    file = tmp_path / "v.yaml"
    file.write_text("count: many\ntxt: a\n")
    with pytest.raises(ColdSnapError) as caught:
        load(registry, files=[file])
    assert found(caught.value) == [
        (
            f'plan.wrong-variable 1:8+4 the variable "count" (from {file}) must be an integer,'
            ' not "many"'
        ),
        'plan.unknown-variable 2:1+3 the plan has no variable "txt" -> did you mean "text"?',
    ]
    file.write_text("- a\n")
    with pytest.raises(ColdSnapError) as caught:
        load(registry, files=[file])
    assert caught.value.code == "plan.wrong-type"
    with pytest.raises(ColdSnapError) as caught:
        load(registry, files=[tmp_path / "none.yaml"])
    assert caught.value.code == "plan.not-found"


def test_the_process_environment_is_read_by_default(registry, tmp_path, monkeypatch):
    plan = tmp_path / "p.yaml"
    plan.write_text(PLAN)
    monkeypatch.setenv("COLDSNAP_VAR_COUNT", "7")
    assert load_plan(plan, registry).variables["count"].value == 7
    assert load_plan(plan, registry, environment={}).variables["count"].value == 1
    assert load_plan(plan, registry, variables=["count=8"]).variables["count"].value == 8


def test_values_are_data_not_expressions(registry):
    plan = load_text(PLAN, registry, Given(["text={{ 1 + 1 }}"], environment={}))
    assert plan.request["steps"][0]["with"] == {"text": "{{ 1 + 1 }}"}
