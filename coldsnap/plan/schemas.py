"""JSON Schemas (2020-12) of plans, templates and step types, composed from the installed specs.

The same schemas check documents at load and, written to ``schemas/``, serve editors. Step types
are told apart by ``enum`` on `type` and one ``if``/``then`` per type: unlike ``oneOf`` that gives
errors a person can read. A value that may be an expression is checked only if it is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias

from coldsnap.plan.language import PlanDoc, TemplateDoc, VariableDoc
from coldsnap.sdk.spec import Spec
from coldsnap.sdk.step import Step

Schema: TypeAlias = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
EXPRESSION: Schema = {"type": "string", "pattern": r"\{\{"}

_NAMED = ("properties", "patternProperties", "$defs")
_LISTED = ("anyOf", "allOf", "oneOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "propertyNames", "contains", "not")
_ANNOTATIONS = ("title", "description", "default", "examples", "deprecated", "placement")
_CONSTRAINTS = ("pattern", "enum", "const", "format", "minLength", "maxLength", "contentEncoding")
_STATIC_STEP_FIELDS = ("hosts", "timeout", "retry", "when")
_TYPES: dict[str, Schema] = {
    "string": {"type": "string"},
    "path": {"type": "string", "minLength": 1},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "list": {"type": "array"},
    "map": {"type": "object"},
}


class Installed(Protocol):
    """What is needed of the registry."""

    @property
    def steps(self) -> Mapping[str, type[Step[Any]]]: ...
    @property
    def template_files(self) -> Mapping[str, Any]: ...
    @property
    def templates(self) -> Mapping[str, Any]: ...
    @property
    def engines(self) -> Mapping[str, Any]: ...


def schemas(registry: Installed) -> dict[str, Schema]:
    """File name below ``schemas/`` -> schema, for all that plans are made of."""
    files = {
        "plan.schema.json": compose_plan_schema(registry),
        "template.schema.json": compose_template_schema(registry),
    }
    for name in sorted(registry.steps):
        files[f"steps/{name}.schema.json"] = step_schema(registry.steps[name])
    return files


def compose_plan_schema(registry: Installed, *, with_inputs: bool = True) -> Schema:
    """The schema of a plan document.

    Args:
        registry: the installed packs.
        with_inputs: describe `with` of template uses too (reads every template's file).
    """
    schema = _language(PlanDoc, "A ColdSnap plan")
    properties = schema["properties"]
    for name in ("model", "units", "store", "driver"):
        properties[name] = relaxed(properties[name])
    for name in ("Model", "Unit", "Mount", "Port"):
        schema["$defs"][name] = relaxed(schema["$defs"][name])
    if registry.engines:
        properties["engine"] = {**properties["engine"], "enum": sorted(registry.engines)}
    properties["engine"] = relaxed(properties["engine"])
    _add_steps(schema, registry, with_inputs=with_inputs)
    return schema


def compose_template_schema(registry: Installed, *, with_inputs: bool = True) -> Schema:
    """The schema of a template's file; arguments as of `compose_plan_schema`."""
    schema = _language(TemplateDoc, "A ColdSnap template")
    _add_steps(schema, registry, with_inputs=with_inputs)
    return schema


def step_schema(step: type[Step[Any]]) -> Schema:
    """The schema of `with` of one step type."""
    spec: Any = step.spec
    schema = relaxed(spec.model_json_schema(by_alias=True), top=True)
    schema["title"] = step.type
    schema["description"] = "\n\n".join(
        part for part in (step.summary, schema.get("description", "")) if part
    )
    return {"$schema": DIALECT, **schema}


def inputs_schema(inputs: Mapping[str, VariableDoc], description: str = "") -> Schema:
    """The schema of `with` of a template's use."""
    properties = {name: _input(declared) for name, declared in inputs.items()}
    required = [name for name, declared in inputs.items() if is_required(declared)]
    schema: Schema = {
        "type": "object",
        "description": description,
        "properties": properties,
        "additionalProperties": False,
    }
    return {**schema, "required": required} if required else schema


def is_required(declared: VariableDoc) -> bool:
    """Whether a variable or input has no default (``default: null`` is one)."""
    return "default" not in declared.model_fields_set


def _input(declared: VariableDoc) -> Schema:
    schema: Schema = dict(_TYPES[declared.type])
    if declared.enum is not None:
        schema["enum"] = list(declared.enum)
    if not is_required(declared):
        if declared.default is None:
            schema = {"anyOf": [schema, {"type": "null"}]}
        schema["default"] = declared.default
    if declared.description:
        schema["description"] = declared.description
    return relaxed(schema)


def _language(model: type[Spec], title: str) -> Schema:
    schema = model.model_json_schema(by_alias=True)
    schema = _walk(schema, lambda each: _without_null(_without_title(each)))
    return {"$schema": DIALECT, **schema, "title": title}


def _add_steps(schema: Schema, registry: Installed, *, with_inputs: bool) -> None:
    """Make StepDoc know the installed step types and templates."""
    defs = schema["$defs"]
    step = defs["StepDoc"]
    properties = step["properties"]
    for name in _STATIC_STEP_FIELDS:
        properties[name] = relaxed(properties[name])
    defs["RetryDoc"] = relaxed(defs["RetryDoc"])
    properties["type"] = {**properties["type"], "enum": sorted(registry.steps)}
    properties["type"].pop("pattern", None)
    properties["uses"] = {**properties["uses"], "enum": sorted(registry.template_files)}
    properties["uses"].pop("pattern", None)
    step["oneOf"] = [{"required": ["type"]}, {"required": ["uses"]}]
    step["allOf"] = [
        *(_type_case(defs, name, registry.steps[name]) for name in sorted(registry.steps)),
        *(_use_cases(defs, registry.templates) if with_inputs else ()),
    ]
    if not step["allOf"]:
        del step["allOf"]


def _type_case(defs: Schema, name: str, step: type[Step[Any]]) -> Schema:
    own = step_schema(step)
    own.pop("$schema")
    inner = own.pop("$defs", {})
    prefix = f"{name}."
    for key, value in inner.items():
        defs[prefix + key] = _renamed(value, prefix)
    defs[name] = _renamed(own, prefix)
    return _case("type", name, defs[name])


def _use_cases(defs: Schema, templates: Mapping[str, Any]) -> Iterable[Schema]:
    for name in sorted(templates):
        defs[name] = {"title": name, **inputs_schema(templates[name].inputs)}
        if templates[name].description:
            defs[name]["description"] = templates[name].description
        yield _case("uses", name, defs[name])


def _case(field: str, name: str, parameters: Schema) -> Schema:
    then: Schema = {"properties": {"with": {"$ref": f"#/$defs/{name}"}}}
    if parameters.get("required"):
        then["required"] = ["with"]
    return {"if": {"properties": {field: {"const": name}}, "required": [field]}, "then": then}


def relaxed(schema: Schema, *, top: bool = False) -> Schema:
    """`schema` such that a value may be an expression instead, at every depth.

    Args:
        schema: JSON Schema as pydantic makes it.
        top: leave the outermost level as it is.
    """
    inner = _walk(schema, lambda each: _or_expression(_null_apart(_without_title(each))), skip=True)
    inner = _null_apart(inner if top else _without_title(inner))
    return inner if top else _or_expression(inner)


def _walk(schema: Any, change: Callable[[Schema], Schema], *, skip: bool = False) -> Any:
    """`schema` with `change` applied to it and to every schema in it, inner ones first."""
    if not isinstance(schema, dict):
        return schema
    result: Schema = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):
            result[key] = {name: _walk(each, change) for name, each in value.items()}
        elif key in _LISTED and isinstance(value, list):
            # Branches are alternatives of one value: what may stand for it is said outside.
            result[key] = [_walk(each, change, skip=key != "prefixItems") for each in value]
        elif key in _SINGLE:
            result[key] = _walk(value, change)
        else:
            result[key] = value
    if "patternProperties" in result:
        # Pydantic says which names are allowed, not that others are refused.
        result.setdefault("additionalProperties", False)
    return result if skip else change(result)


def _without_title(schema: Schema) -> Schema:
    """Pydantic titles every field by its own name, which says nothing."""
    if "properties" in schema:
        return schema
    return {key: value for key, value in schema.items() if key != "title"}


def _split_null(schema: Schema) -> tuple[Schema, list[Schema]] | None:
    branches = schema.get("anyOf")
    if not isinstance(branches, list) or {"type": "null"} not in branches:
        return None
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    return rest, [branch for branch in branches if branch != {"type": "null"}]


def _without_null(schema: Schema) -> Schema:
    """Fields of plans that may be absent may not be null: an empty value is a slip."""
    split = _split_null(schema)
    if split is None:
        return schema
    rest, branches = split
    if rest.get("default", 0) is None:
        del rest["default"]
    return {**branches[0], **rest} if len(branches) == 1 else {**rest, "anyOf": branches}


def _null_apart(schema: Schema) -> Schema:
    """``anyOf [X, null]`` as ``if null else X``, so that errors speak of X."""
    split = _split_null(schema)
    if split is None:
        return schema
    rest, branches = split
    other = branches[0] if len(branches) == 1 else {"anyOf": branches}
    notes = {key: rest.pop(key) for key in _ANNOTATIONS if key in rest}
    return {**notes, "if": {"type": "null"}, "then": {}, "else": {**other, **rest}}


def _or_expression(schema: Schema) -> Schema:
    if not schema or "$ref" in schema or _takes_any_text(schema) or schema.get("if") == EXPRESSION:
        return schema
    if not schema.keys() - set(_ANNOTATIONS):
        return schema
    notes = {key: value for key, value in schema.items() if key in (*_ANNOTATIONS, "$defs")}
    rest = {key: value for key, value in schema.items() if key not in notes}
    return {**notes, "if": EXPRESSION, "then": {}, "else": rest}


def _takes_any_text(schema: Schema) -> bool:
    if "anyOf" in schema:
        return any(_takes_any_text(branch) for branch in schema["anyOf"])
    if "if" in schema:
        return _takes_any_text(schema.get("else", {"type": "none"}))
    kinds = schema.get("type", ())
    is_text = kinds == "string" or (isinstance(kinds, list) and "string" in kinds)
    return is_text and not any(key in schema for key in _CONSTRAINTS)


def _renamed(schema: Any, prefix: str) -> Any:
    """`schema` with references to its own definitions under `prefix`."""
    if isinstance(schema, list):
        return [_renamed(each, prefix) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: f"#/$defs/{prefix}{value.removeprefix('#/$defs/')}"
        if key == "$ref" and isinstance(value, str)
        else _renamed(value, prefix)
        for key, value in schema.items()
    }
