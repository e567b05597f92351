"""Step types: the list, and all there is to know of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from coldsnap.render.columns import Cell, table
from coldsnap.render.palette import PLAIN, Palette, clean

if TYPE_CHECKING:
    from coldsnap.plan.templates import Template
    from coldsnap.sdk.step import Step


def steps_text(
    types: Mapping[str, type[Step[Any]]], templates: Mapping[str, str], palette: Palette = PLAIN
) -> str:
    """Step types by pack, then templates (name -> description)."""
    rows = [(name, step.scope.value, _marks(step), step.summary) for name, step in types.items()]
    text = table(("STEP TYPE", "PER", "", "WHAT IT DOES"), sorted(rows), palette)
    if templates:
        lines = [(name, summary) for name, summary in sorted(templates.items())]
        text += "\n\n" + table(("TEMPLATE", "WHAT IT DOES"), lines, palette)
    return text


def _marks(step: type[Step[Any]]) -> str:
    words = []
    if step.read_only:
        words.append("reads only")
    if not step.reversible:
        words.append("irreversible")
    return ", ".join(words)


def step_text(
    name: str, step: type[Step[Any]], schema: Mapping[str, Any], readme: str, palette: Palette
) -> str:
    """Summary, parameters, outputs, the README with its example."""
    about = [f"once per {step.scope.value}", _marks(step)]
    parts = [
        f"{palette.paint(name, 'strong')}: {clean(step.summary)}",
        f"  {', '.join(word for word in about if word)}",
        palette.paint("with", "strong") + "\n" + _parameters(schema, palette),
    ]
    if step.outputs:
        rows = [(Cell(n, "hint"), what) for n, what in step.outputs.items()]
        parts.append(palette.paint("outputs", "strong") + "\n" + table((), rows, indent="  "))
    if readme:
        parts.append(readme.strip())
    return "\n\n".join(parts)


def template_text(template: Template, palette: Palette = PLAIN) -> str:
    """Description, inputs, steps, outputs."""
    parts = [f"{palette.paint(template.name, 'strong')}: {clean(template.description)}"]
    rows = [
        (
            Cell(name, "hint"),
            value.type,
            "required" if "default" not in value.model_fields_set else f"default {value.default}",
            value.description,
        )
        for name, value in template.inputs.items()
    ]
    shown = table((), rows, palette, indent="  ") if rows else "  nothing"
    parts.append(palette.paint("with", "strong") + "\n" + shown)
    steps = [(str(s.get("id", "")), Cell(str(s.get("type") or s.get("uses")), "dim"))
             for s in template.steps]  # fmt: skip
    parts.append(palette.paint("steps", "strong") + "\n" + table((), steps, palette, indent="  "))
    if template.outputs:
        names = "\n".join(f"  {clean(name)}" for name in template.outputs)
        parts.append(palette.paint("outputs", "strong") + "\n" + names)
    return "\n\n".join(parts)


def _parameters(schema: Mapping[str, Any], palette: Palette) -> str:
    properties = schema.get("properties") or {}
    required = set(schema.get("required") or ())
    if not properties:
        return "  nothing"
    rows = [
        (
            Cell(name, "hint"),
            _kind(value, schema),
            "required" if name in required else _default(value),
            " ".join(str(value.get("description", "")).split()),
        )
        for name, value in properties.items()
    ]
    return table((), rows, palette, indent="  ")


def _kind(value: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """``integer``, ``text or number``, ``list of integer``, ``a | b``."""
    if "$ref" in value:
        name = str(value["$ref"]).rpartition("/")[2]
        return _kind(schema.get("$defs", {}).get(name, {"type": name}), {})
    if "enum" in value:
        return " | ".join(str(choice) for choice in value["enum"])
    if "const" in value:
        return str(value["const"])
    if "anyOf" in value:
        kinds = (_kind(part, schema) for part in value["anyOf"])
        return " or ".join(dict.fromkeys(kind for kind in kinds if kind != "null"))
    if value.get("type") == "array":
        return f"list of {_kind(value.get('items') or {}, schema)}"
    return str(value.get("type", "any"))


def _default(value: Mapping[str, Any]) -> str:
    default = value.get("default")
    return f"default {default}" if default not in (None, "", [], {}) else ""
