"""``coldsnap status``."""

from typing import Annotated

import typer

from coldsnap.cli.options import command, group
from coldsnap.cli.session import Session

app = group("Show which units run where, and in which state.")

_FACT = "coldsnap_core.facts:RuntimeVerb"


@command(
    app,
    fleet=True,
    examples="""
        coldsnap status
        coldsnap status -i inventories/prod.yaml gpu-1
        coldsnap status --json
        coldsnap status --request-json request.json
    """,
)
def status(
    session: Session,
    hosts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[HOST]...", help="Hosts or groups; all if none is named."),
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show stopped generations too.")] = False,
    request: Annotated[
        str | None,
        typer.Option("--request-json", metavar="FILE", help="Only the units of a request."),
    ] = None,
) -> None:
    """Show which units run where, and in which state."""
    from coldsnap.cli.requests import read
    from coldsnap.cli.wiring import ask_each, fleet_of, runtime_of, select
    from coldsnap.engine.place import runtime_place
    from coldsnap.render.hosts import only_units, status_text, units_of
    from coldsnap.sdk.host import FactRequest, Host

    wanted = read(request, "status").launch.units if request is not None else ()
    named = [*(hosts or ()), *(unit.host for unit in wanted if unit.host)]
    with fleet_of(session) as fleet:
        runtime = runtime_of(session, fleet)

        def question(host: Host) -> FactRequest:
            place = runtime_place(host, runtime)
            return FactRequest(_FACT, {"verb": "unit.status", "request": {}, **place})

        answers = ask_each(fleet, select(fleet, named), question)
    if wanted:
        answers = [only_units(answer, [unit.id for unit in wanted]) for answer in answers]
    session.answer(
        lambda: status_text(answers, session.palette, show_all=show_all),
        [
            {
                "host": answer.host,
                "staged": answer.value.get("staged", True) if not answer.error else None,
                "units": [dict(unit) for unit in units_of(answer)],
                "error": answer.error.to_json() if answer.error else None,
            }
            for answer in answers
        ],
    )
    if any(answer.error is not None for answer in answers):
        raise typer.Exit(1)
