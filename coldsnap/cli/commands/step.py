"""``coldsnap step``: the step types that are installed, and new ones."""

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from coldsnap.cli.options import command, group
from coldsnap.cli.session import Session

app = group("List, describe and scaffold step types.")


@command(
    app,
    "list",
    examples="""
        coldsnap step list
        coldsnap step list core --json
    """,
)
def list_(
    session: Session,
    pack: Annotated[str | None, typer.Argument(metavar="[PACK]", help="Of one pack.")] = None,
) -> None:
    """List step types and templates of all installed packs."""
    from coldsnap.plan.registry import Registry
    from coldsnap.render.steps import steps_text

    registry = Registry.installed()
    prefix = f"{pack}." if pack else ""
    types = {name: step for name, step in registry.steps.items() if name.startswith(prefix)}
    templates = {
        name: registry.template(name).description
        for name in registry.template_files
        if name.startswith(prefix)
    }
    session.answer(
        lambda: steps_text(types, templates, session.palette),
        {
            "steps": [
                {
                    "type": name,
                    "summary": step.summary,
                    "scope": step.scope.value,
                    "read_only": step.read_only,
                    "reversible": step.reversible,
                    "outputs": dict(step.outputs),
                }
                for name, step in sorted(types.items())
            ],
            "templates": templates,
        },
    )


@command(
    app,
    examples="""
        coldsnap step show core.restore
        coldsnap step show core.probe --json
    """,
)
def show(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="TYPE", help="Step type or template.")],
) -> None:
    """Show the parameters, outputs and example of a step type or template."""
    import inspect

    from coldsnap.plan.registry import Registry
    from coldsnap.render.steps import step_text, template_text

    registry = Registry.installed()
    if name in registry.template_files:
        template = registry.template(name)
        session.answer(
            lambda: template_text(template, session.palette),
            {"template": name, "file": str(registry.template_files[name])},
        )
        return
    step = registry.step(name)
    readme = Path(inspect.getfile(step)).parent / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    # mypy takes `type` in the class body of Step for its step type.
    schema: dict[str, Any] = cast("Any", step).spec.model_json_schema()
    session.answer(
        lambda: step_text(name, step, schema, text, session.palette),
        {
            "type": name,
            "summary": step.summary,
            "scope": step.scope.value,
            "outputs": dict(step.outputs),
            "schema": schema,
            "readme": text,
        },
    )


@command(
    app,
    examples="""
        coldsnap step new core/thaw
        coldsnap step new mine/check --packs steps
    """,
)
def new(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="PACK/VERB", help="Pack and name of the step.")],
    packs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of packs. Default: steps/.")
    ] = None,
) -> None:
    """Write the folder of a new step type, with code, README and cases that pass."""
    from coldsnap.cli.scaffold.steps import scaffold_step

    made = scaffold_step(name, packs or session.project / "steps")
    lines = [f"{path}" for path in made.written]
    if not made.listed:
        lines.append(f'add "{made.type}" to STEPS in {made.folder.parent}/__init__.py')
    if made.new_pack:
        pack = made.type.partition(".")[0]
        lines.append(
            f'register the new pack in pyproject.toml, [project.entry-points."coldsnap.steps"]: '
            f'{pack} = "{made.folder.parent.name}:PACK"; then install it'
        )
    lines.append(f"next: edit {made.folder}/step.py; pytest tests/steps -k {made.type}")
    session.answer(
        "\n".join(lines),
        {"type": made.type, "files": [str(path) for path in made.written], "listed": made.listed},
    )
