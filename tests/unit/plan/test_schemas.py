from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from plan_pack import demo_registry

from coldsnap.plan.document import parse_document
from coldsnap.plan.registry import Registry
from coldsnap.plan.schemas import compose_plan_schema, relaxed, schemas

REGISTRY = demo_registry()
SCHEMA = compose_plan_schema(REGISTRY)


def test_one_file_per_kind_of_document_and_step_type():
    files = schemas(REGISTRY)
    assert sorted(files) == [
        "plan.schema.json",
        "steps/demo.ask.schema.json",
        "steps/demo.note.schema.json",
        "steps/demo.probe.schema.json",
        "template.schema.json",
    ]
    for schema in files.values():
        Draft202012Validator.check_schema(schema)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert schema["title"]
        assert json.loads(json.dumps(schema)) == schema


def test_the_schemas_of_what_is_installed_are_valid_and_stable():
    registry = Registry.installed()
    one, two = schemas(registry), schemas(registry)
    assert json.dumps(one) == json.dumps(two)
    for schema in one.values():
        Draft202012Validator.check_schema(schema)


def test_every_reference_in_the_schema_resolves():
    def walk(value):
        if isinstance(value, dict):
            if "$ref" in value:
                assert value["$ref"].removeprefix("#/$defs/") in SCHEMA["$defs"]
            for each in value.values():
                walk(each)
        elif isinstance(value, list):
            for each in value:
                walk(each)

    walk(SCHEMA)


def test_editors_show_what_a_field_is_for():
    properties = SCHEMA["properties"]
    undescribed = {name for name, each in properties.items() if "description" not in each}
    assert undescribed <= {"description", "model", "steps"}
    probe = SCHEMA["$defs"]["demo.probe"]
    assert probe["description"].startswith("Look at a host")
    assert probe["properties"]["timeout"]["description"] == "Longest time for the probe."
    assert SCHEMA["$defs"]["demo.capture"]["description"] == "Probe, then ask twice"
    assert SCHEMA["$defs"]["StepDoc"]["properties"]["type"]["enum"] == sorted(REGISTRY.steps)
    assert SCHEMA["$defs"]["StepDoc"]["properties"]["uses"]["enum"] == [
        "demo.capture",
        "demo.twice",
    ]


def _errors(text):
    data = parse_document(text.encode(), "x").data
    return sorted(Draft202012Validator(SCHEMA).iter_errors(data), key=str)


HEAD = "coldsnap: plan/v1\nname: x\n"


@pytest.mark.parametrize(
    "steps",
    [
        "{type: demo.probe, with: {count: 3, deep: true, memory: 2GB, timeout: 10m}}",
        "{type: demo.probe, with: {count: '{{ x }}', deep: '{{ x }}', memory: '{{ x }}'}}",
        "{type: demo.probe, with: {level: '{{ x }}', features: '{{ x }}', timeout: '{{ x }}'}}",
        "{type: demo.probe, with: {features: ['{{ x }}', b], memory: null}}",
        "{type: demo.ask, with: {prompt: a, accept: {prompt: a, tokens: '{{ x }}'}}}",
        "{type: demo.ask, with: {prompt: a, accept: '{{ x }}'}}",
        "{type: demo.ask, with: {prompt: a, accept: null}}",
        "{type: demo.note, with: {extra: {a: 1, b: '{{ x }}'}}}",
        "{type: demo.note, hosts: '{{ x }}', timeout: '{{ x }}', retry: {attempts: '{{ x }}'}}",
        "{type: demo.note, when: true}",
        "{uses: demo.capture, with: {prompt: a, tokens: 3}}",
        "{uses: demo.twice, with: {text: a, extra: null}}",
    ],
)
def test_the_schema_accepts(steps):
    assert _errors(HEAD + f"steps: [{steps}]\n") == []


@pytest.mark.parametrize(
    "steps",
    [
        "{type: demo.probe, with: {count: '3'}}",
        "{type: demo.probe, with: {count: 0}}",
        "{type: demo.probe, with: {level: other}}",
        "{type: demo.probe, with: {features: b}}",
        "{type: demo.probe, with: '{{ x }}'}",
        "{type: demo.ask, with: {prompt: a, accept: {tokens: 1}}}",
        "{type: demo.ask, with: {accept: {prompt: a}}}",
        "{type: demo.ask}",
        "{type: demo.note, with: {extra: {a: x}}}",
        "{type: demo.note, retry: {attempts: '3'}}",
        "{type: demo.note, uses: demo.capture}",
        "{uses: demo.capture, with: {}}",
        "{uses: demo.capture, with: {prompt: a, tokens: few}}",
        "{id: '{{ x }}', type: demo.note}",
        "{}",
    ],
)
def test_the_schema_refuses(steps):
    assert _errors(HEAD + f"steps: [{steps}]\n")


def test_several_faults_are_several_errors():
    assert len(_errors("coldsnap: plan/v1\nnam: x\nsteps: [{type: x}, {timout: 1}]\n")) == 5


def test_relaxed_keeps_annotations_in_sight_of_editors():
    schema = relaxed(
        {"type": "integer", "minimum": 1, "description": "d", "default": 2, "title": "T"}
    )
    assert schema == {
        "description": "d",
        "default": 2,
        "if": {"type": "string", "pattern": r"\{\{"},
        "then": {},
        "else": {"type": "integer", "minimum": 1},
    }


def test_free_text_stays_as_it_is():
    assert relaxed({"type": "string", "description": "d"}) == {"type": "string", "description": "d"}


def test_the_test_pack_s_templates_pass_the_template_schema():
    validator = Draft202012Validator(schemas(REGISTRY)["template.schema.json"])
    for path in (Path(__file__).parent / "pack" / "templates").glob("*.yaml"):
        assert list(validator.iter_errors(parse_document(path.read_bytes(), "x").data)) == []
