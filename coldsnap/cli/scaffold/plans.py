"""``plan new``: a plan that uses one template, with all its inputs in sight."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

    from coldsnap.plan.language import VariableDoc
    from coldsnap.plan.templates import Template

_EXAMPLES: Final[dict[str, Any]] = {
    "string": "change-me",
    "path": "/change/me",
    "int": 1,
    "float": 1.0,
    "bool": True,
    "list": [],
    "map": {},
}


def plan_text(name: str, template: Template, engine: str | None, schema: str) -> str:
    """The document. Inputs without a default get an example value, the others are commented.

    Args:
        name: of the plan.
        template: what it uses.
        engine: engine pack; None for a template that needs none.
        schema: path of the JSON Schema for editors, relative to the plan; empty for none.
    """
    lines = [f"# yaml-language-server: $schema={schema}"] if schema else []
    lines += ["coldsnap: plan/v1", f"name: {name}"]
    lines.append(f"description: {json.dumps(template.description, ensure_ascii=False)}")
    if engine is not None:
        lines += [
            "vars:",
            "  model: {type: path, description: folder of the model on the hosts}",
            "  port: {type: int, default: 8000, description: port on the host}",
            f"engine: {engine}",
            f'model: {{id: {name}, path: "{{{{ vars.model }}}}"}}',
            "units:",
            '  - {id: u0, hosts: all, ports: [{inner: 8000, port: "{{ vars.port }}"}]}',
        ]
    lines += ["steps:", f"  - uses: {template.name}"]
    inputs = [_input(key, value, name) for key, value in template.inputs.items()]
    # Comments alone would make `with:` empty, which is not a map.
    given = any(not line.lstrip().startswith("#") for line in inputs)
    lines.append("    with:" if given else "    # with:")
    lines += inputs
    return "\n".join(lines) + "\n"


def _input(key: str, value: VariableDoc, plan: str) -> str:
    about = "  ".join(word for word in (f"# {value.type}", value.description) if word)
    if "default" in value.model_fields_set:
        return f"      # {key}: {json.dumps(value.default)}  {about}"
    example = value.enum[0] if value.enum else _EXAMPLES[value.type]
    if key == "name" or (key == "artifact" and value.type == "string"):
        example = plan
    return f"      {key}: {json.dumps(example)}  {about}; required"


def schema_path(plan: Path, project: Path) -> str:
    """The plan schema of the project, as seen from the plan; empty if it has none."""
    schema = project / "schemas" / "plan.schema.json"
    return os.path.relpath(schema, plan.resolve().parent) if schema.is_file() else ""
