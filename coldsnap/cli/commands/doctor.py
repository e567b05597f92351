"""``coldsnap doctor``."""

from typing import Annotated

import typer

from coldsnap.cli.options import command, group
from coldsnap.cli.session import Session

app = group("Tell what each host can do, what it lacks and how to get it.")

_FACT = "coldsnap_core.facts:HostProfile"


@command(
    app,
    fleet=True,
    examples="""
        coldsnap doctor
        coldsnap doctor -i inventories/prod.yaml gpu-1
        coldsnap doctor --json
    """,
)
def doctor(
    session: Session,
    hosts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[HOST]...", help="Hosts or groups; all if none is named."),
    ] = None,
) -> None:
    """Tell what each host can do, what it lacks and how to get it."""
    from coldsnap.cli.wiring import ask_each, fleet_of, select
    from coldsnap.render.hosts import doctor_text
    from coldsnap.sdk.host import FactRequest, Host

    def question(host: Host) -> FactRequest:
        # The probe runs alone: a host is examined before any runtime pack is built for it.
        state_dir = str(host.vars.get("state_dir") or "/var/lib/coldsnap")
        python = str(host.vars.get("python") or "python3")
        place = {"pack": f"{state_dir}/runtime/none", "python": python, "state_dir": state_dir}
        return FactRequest(_FACT, place)

    with fleet_of(session) as fleet:
        answers = ask_each(fleet, select(fleet, hosts or ()), question)
    session.answer(
        lambda: doctor_text(answers, session.palette),
        [
            {
                "host": answer.host,
                "profile": dict(answer.value) or None,
                "error": answer.error.to_json() if answer.error else None,
            }
            for answer in answers
        ],
    )
    unreached = [answer for answer in answers if answer.error is not None]
    if unreached:
        raise typer.Exit(1)
