"""``plan validate``, ``show``, ``graph``: what a plan says, without any host."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from coldsnap.cli.commands.plan_app import PLAN, app
from coldsnap.cli.options import command
from coldsnap.cli.session import Session


class GraphFormat(StrEnum):
    TEXT = "text"
    MERMAID = "mermaid"
    DOT = "dot"
    SVG = "svg"


@command(
    app,
    variables=True,
    examples="""
        coldsnap plan validate plans/reference/capture.yaml --var model=model
        coldsnap plan validate plans/evict.yaml --var unit=engine --json
    """,
)
def validate(
    session: Session,
    plans: Annotated[list[str], typer.Argument(metavar="PLAN...", help="Plan files.")],
) -> None:
    """Check plans: form, types, names, references, cycles; every error with its place."""
    from coldsnap.artifact.errors import ColdSnapError
    from coldsnap.cli.plans import load
    from coldsnap.render.quantities import plural

    lines, data = [], []
    failed: list[ColdSnapError] = []
    for name in plans:
        try:
            plan = load(session, name).plan
        except ColdSnapError as error:
            failed.append(error)
            data.append({"plan": name, "valid": False, "error": error.to_json()})
            continue
        lines.append(f"{name}: valid, {plural(len(plan.steps), 'step')}")
        data.append({"plan": name, "valid": True, "request_sha256": plan.request_sha256})
    session.answer("\n".join(lines), data)
    if failed:
        first, *others = failed
        first.more = (*first.more, *others)
        session.error(first)
        raise typer.Exit(1)


@command(
    app,
    variables=True,
    examples="""
        coldsnap plan show plans/reference/capture.yaml --var model=model
        coldsnap plan show plans/reference/capture.yaml --var model=model --expanded
    """,
)
def show(
    session: Session,
    plan: Annotated[str, PLAN],
    expanded: Annotated[
        bool, typer.Option("--expanded", help="Show every step with its parameters.")
    ] = False,
) -> None:
    """Show what a plan resolves to: variables, topology, the steps of its templates."""
    from coldsnap.cli.plans import load
    from coldsnap.render.plans import plan_json, plan_text

    found = load(session, plan).plan
    session.answer(lambda: plan_text(found, session.palette, expanded=expanded), plan_json(found))


@command(
    app,
    variables=True,
    examples="""
        coldsnap plan graph plans/reference/capture.yaml --var model=model
        coldsnap plan graph plans/reference/capture.yaml --var model=model --format mermaid
        coldsnap plan graph plans/reference/capture.yaml --var model=model --format svg
    """,
)
def graph(
    session: Session,
    plan: Annotated[str, PLAN],
    format_: Annotated[
        GraphFormat, typer.Option("--format", "-f", help="text, mermaid, dot or svg.")
    ] = GraphFormat.TEXT,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write it to a file.")
    ] = None,
) -> None:
    """Draw the steps of a plan and what each needs."""
    from coldsnap.artifact.errors import ColdSnapError
    from coldsnap.artifact.files import same_file, write_named
    from coldsnap.cli.plans import load
    from coldsnap.graph.dag import StepGraph
    from coldsnap.graph.pictures import render

    steps = StepGraph.of(load(session, plan).plan)
    text = render(steps, format_.value)
    if out is not None:
        if same_file(out, plan):
            raise ColdSnapError("plan.out-exists", f"{out} is the plan itself")
        write_named(out, text.encode() + b"\n")
        text = str(out)
    nodes = [(name, steps.by_id[name]) for name in steps.order]
    session.answer(
        text,
        {
            "order": list(steps.order),
            "nodes": [{"id": n, "type": node.type, "needs": list(node.needs)} for n, node in nodes],
        },
    )
