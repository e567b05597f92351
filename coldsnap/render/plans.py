"""``plan show``: what a plan resolves to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from coldsnap.render.columns import Cell, table
from coldsnap.render.palette import PLAIN, Palette, clean
from coldsnap.render.quantities import duration, plural, short_digest

if TYPE_CHECKING:
    from coldsnap.plan.model import Plan, StepNode


def plan_text(plan: Plan, palette: Palette = PLAIN, *, expanded: bool = False) -> str:
    """Head, variables, topology, steps; `expanded` adds each step's parameters."""
    head = f"{palette.paint(clean(plan.name), 'strong')}  {clean(plan.path)}"
    parts = [f"{head}\n{clean(plan.description)}".rstrip(), _facts(plan, palette)]
    if plan.variables:
        rows = [
            (Cell(v.name, "hint"), json.dumps(v.value), v.origin.value, v.description)
            for v in plan.variables.values()
        ]
        parts.append(_section("variables", table((), rows, palette, indent="  "), palette))
    if expanded:
        steps = "\n".join(_step(step, palette) for step in plan.steps)
    else:
        steps = table((), [_row(step) for step in plan.steps], palette, indent="  ")
    parts.append(_section(plural(len(plan.steps), "step"), steps, palette))
    return "\n\n".join(parts)


def _section(title: str, body: str, palette: Palette) -> str:
    return f"{palette.paint(title, 'strong')}\n{body}"


def _facts(plan: Plan, palette: Palette) -> str:
    rows = [("engine", plan.engine or "-"), ("driver", plan.driver)]
    if plan.model is not None:
        words = (plan.model.id, plan.model.revision, plan.model.path)
        rows.append(("model", "  ".join(word for word in words if word)))
    if plan.topology is not None:
        rows.extend(
            (f"unit {unit.id}", f"on {unit.hosts}, {unit.runtime}") for unit in plan.topology.units
        )
    rows += [("store", plan.store), ("request", short_digest(plan.request_sha256))]
    return table((), [(Cell(name, "dim"), value) for name, value in rows], palette, indent="  ")


def _row(step: StepNode) -> tuple[str | Cell, ...]:
    needs = f"<- {', '.join(step.needs)}" if step.needs else ""
    return (step.id, Cell(step.type, "dim"), needs, f"when {step.when}" if step.when else "")


def _step(step: StepNode, palette: Palette) -> str:
    lines = [f"  {palette.paint(clean(step.id), 'strong')}  {clean(step.type)}"]
    facts = [
        ("needs", ", ".join(step.needs)),
        ("hosts", step.hosts or ""),
        ("when", step.when or ""),
        ("timeout", duration(step.timeout) if step.timeout else ""),
        ("retry", plural(step.retry.attempts, "try", "tries") if step.retry.attempts > 1 else ""),
        ("on_failure", step.on_failure.value if step.on_failure.value != "recover" else ""),
    ]
    lines += [f"      {palette.paint(name, 'dim')} {clean(v)}" for name, v in facts if v]
    if step.raw_with:
        lines.append(f"      {palette.paint('with', 'dim')}")
        lines += [f"        {clean(n)}: {clean(_value(v))}" for n, v in step.raw_with.items()]
    return "\n".join(lines)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def plan_json(plan: Plan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "path": plan.path,
        "description": plan.description,
        "document_sha256": plan.document_sha256,
        "request_sha256": plan.request_sha256,
        "engine": plan.engine,
        "driver": plan.driver,
        "model": plan.model.model_dump(mode="json") if plan.model else None,
        "topology": plan.topology.model_dump(mode="json") if plan.topology else None,
        "store": plan.store,
        "variables": {
            v.name: {"value": v.value, "origin": v.origin.value, "type": v.type}
            for v in plan.variables.values()
        },
        "steps": [
            {
                "id": step.id,
                "type": step.type,
                "needs": list(step.needs),
                "hosts": step.hosts,
                "with": dict(step.raw_with),
                "when": step.when,
                "timeout": step.timeout,
                "retry": vars(step.retry),
                "on_failure": step.on_failure.value,
                "template": step.template,
            }
            for step in plan.steps
        ],
        "request": dict(plan.request),
    }
