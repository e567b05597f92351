"""``plan new``: a plan to start from."""

from pathlib import Path
from typing import Annotated

import typer

from coldsnap.cli.commands.plan_app import PLAN, app
from coldsnap.cli.options import command
from coldsnap.cli.session import Session


@command(
    app,
    examples="""
        coldsnap plan new reference.capture --out plans/capture.yaml
        coldsnap plan new vllm.capture --name qwen3-8b-capture --engine vllm
    """,
)
def new(
    session: Session,
    template: Annotated[
        str, typer.Argument(metavar="TEMPLATE", help="Template to use; see coldsnap step list.")
    ],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the plan. Default: of the template.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="ENGINE", help="Engine pack. Default: the template's.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write it to a new file.")
    ] = None,
) -> None:
    """Write a plan that uses a template, with all its inputs in sight."""
    from coldsnap.artifact.errors import ColdSnapError
    from coldsnap.artifact.files import file_error, write_new
    from coldsnap.cli.scaffold.plans import plan_text, schema_path
    from coldsnap.plan.registry import Registry

    registry = Registry.installed()
    found = registry.template(template)
    pack = template.partition(".")[0]
    if engine is not None:
        registry.engine(engine)
    chosen = engine or (pack if pack in registry.engines else None)
    title = name or template.replace(".", "-").replace("_", "-")
    place = schema_path(out, session.project) if out is not None else ""
    text = plan_text(title, found, chosen, place)
    if out is None:
        session.answer(text.rstrip("\n"), {"name": title, "text": text, "file": None})
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_new(out, text.encode(), 0o644)
    except FileExistsError:
        raise ColdSnapError("scaffold.exists", f"{out} is there already") from None
    except OSError as error:
        raise file_error(error, out) from error
    session.answer(
        f"{out}\nnext: fill it in; coldsnap plan validate {out}",
        {"name": title, "text": text, "file": str(out)},
    )


@command(
    app,
    fleet=True,
    store=True,
    examples="""
        coldsnap plan pin plans/reference/restore.yaml
        coldsnap plan pin plans/reference/restore.yaml --check
    """,
)
def pin(
    session: Session,
    plan: Annotated[str, PLAN],
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if something is not pinned.")
    ] = False,
) -> None:
    """Write digests and commits in place of names; comments and order stay."""
    from coldsnap.artifact.oci.read import find
    from coldsnap.cli.pinning import pins
    from coldsnap.cli.stores import store_of
    from coldsnap.plan.document import read_document
    from coldsnap.plan.edit import edit_file
    from coldsnap.render.quantities import plural

    document = read_document(plan)
    found = pins(document, lambda name: find(store_of(session), name).digest)
    if found and not check:
        edit_file(plan, {item.place: item.new for item in found})
    lines = [f"{item.label}: {item.old or '(nothing)'} -> {item.new}" for item in found]
    what = plural(len(found), "value")
    last = f"{what} {'not pinned' if check else 'pinned'} in {plan}" if found else "all is pinned"
    session.answer(
        "\n".join([*lines, last]),
        [{"place": item.label, "old": item.old, "new": item.new} for item in found],
    )
    if found and check:
        raise typer.Exit(1)
