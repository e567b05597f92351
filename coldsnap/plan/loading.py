"""A plan file -> a typed, expanded, checked `Plan`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.plan.document import Document, parse_document, read_document
from coldsnap.plan.expansion import Around, Expander
from coldsnap.plan.head import Head, HeadReader
from coldsnap.plan.language import VariableDoc
from coldsnap.plan.model import Frame, Plan, StepNode, Variable
from coldsnap.plan.problems import Problems, shown
from coldsnap.plan.references import Visible
from coldsnap.plan.registry import Registry
from coldsnap.plan.rendering import Renderer, plan_names
from coldsnap.plan.report import Checked
from coldsnap.plan.request import resolve_request
from coldsnap.plan.validation import check_schema, check_typed
from coldsnap.plan.variables import Given, check_declaration, resolve_variables
from coldsnap.sdk.step import Scope as Place


def load_plan(
    path: str | Path,
    registry: Registry,
    *,
    variables: Sequence[str] = (),
    variable_files: Sequence[str | Path] = (),
    environment: Mapping[str, str] | None = None,
) -> Plan:
    """Read, check and expand a plan.

    Args:
        path: the file.
        registry: installed packs, `Registry.installed()`.
        variables: ``name=value`` of ``--var``.
        variable_files: YAML or JSON files of ``--var-file``; the last wins.
        environment: where ``COLDSNAP_VAR_<NAME>`` is looked up; default `os.environ`.

    Raises:
        ColdSnapError: ``plan.*`` with the place in the file; further errors in its `more`.
    """
    given = Given(variables, variable_files)
    if environment is not None:
        given = replace(given, environment=environment)
    return load_document(read_document(path), registry, given)


def load_text(
    text: str | bytes, registry: Registry, given: Given | None = None, *, path: str = "plan.yaml"
) -> Plan:
    """As `load_plan`, from text; `path` is what errors name."""
    content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return load_document(parse_document(content, path), registry, given or Given())


def load_document(document: Document, registry: Registry, given: Given) -> Plan:
    """As `load_plan`, from a parsed document."""
    data = _checked_data(document, registry)
    problems = Problems()
    variables = _variables(document, data, given, problems)
    values = {name: variable.value for name, variable in variables.items()}
    head = HeadReader(document, data, values, problems).read(registry)
    names = plan_names(data["name"], data.get("description", ""), head, values)
    around = Around(frame=Frame(), document=document)
    declared = tuple(data.get("vars", {}))
    visible = Visible(declared, None, {}, has_model=head.model is not None)
    steps = Expander(registry, names, problems).expand(data["steps"], around, visible)
    problems.raise_if_any()
    request, request_sha256 = resolve_request(head, steps, registry, names)
    plan = Plan(
        path=document.file,
        name=data["name"],
        description=data.get("description", ""),
        document_sha256=document.sha256,
        variables=variables,
        engine=head.engine,
        driver=head.driver,
        model=head.model,
        topology=head.topology,
        store=head.store,
        steps=tuple(steps),
        request=request,
        request_sha256=request_sha256,
        raw_units=head.raw_units,
        unit_sources=head.unit_sources,
    )
    _check_steps(plan, head, registry)
    return plan


def _checked_data(document: Document, registry: Registry) -> dict[str, Any]:
    data, problems = document.data, Problems()
    if not isinstance(data, dict):
        raise ColdSnapError(
            "plan.not-a-plan",
            f"{document.file} is not a plan: it holds {shown(data)}",
            source=document.source(()),
            remedy="start it with  coldsnap: plan/v1",
        )
    check_schema(registry.validator("plan"), data, Checked(document), problems)
    problems.raise_if_any()
    return data


def _variables(
    document: Document, data: Mapping[str, Any], given: Given, problems: Problems
) -> dict[str, Variable]:
    declared: dict[str, VariableDoc] = {}
    for name, raw in data.get("vars", {}).items():
        path = ("vars", name)
        try:
            declared[name] = VariableDoc.model_validate(raw)
        except ValidationError as error:
            check_typed(error, Checked(document, path), problems)
            continue
        check_declaration(name, declared[name], document, path, problems)
    problems.raise_if_any()
    variables = resolve_variables(declared, given, document, problems)
    problems.raise_if_any()
    return variables


def _check_steps(plan: Plan, head: Head, registry: Registry) -> None:
    """Make the typed parameters of every step that depends on no host and no other step."""
    problems, renderer = Problems(), Renderer(plan, registry)
    for node in plan.steps:
        if head.topology is None and registry.steps[node.type].scope is Place.UNIT:
            problems.add(
                "plan.no-units",
                f"step {shown(node.id)} ({node.type}) works on units, and the plan has none",
                node.source,
                remedy="add engine: and units: to the plan",
            )
        _check_step(node, renderer, problems)
    problems.raise_if_any()


def _check_step(node: StepNode, renderer: Renderer, problems: Problems) -> None:
    try:
        renderer.check(node)
    except ColdSnapError as error:
        problems.keep(error)
