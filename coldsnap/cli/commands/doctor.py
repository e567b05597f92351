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
    from coldsnap.cli.wiring import ask_each, fleet_of, runtime_at_hand, select, unpacked_criu
    from coldsnap.engine.place import runtime_place
    from coldsnap.render.hosts import doctor_text
    from coldsnap.sdk.host import FactRequest, Host
    from coldsnap.sdk.step import RuntimeRef

    absent = RuntimeRef("sha256:none", "", "", 0)

    with fleet_of(session) as fleet:
        runtime = runtime_at_hand(session, fleet)
        entries = fleet.inventory.hosts
        has_local = any(entry.connector == "local" for entry in entries.values())

        with unpacked_criu(runtime if has_local else None) as criu:

            def question(host: Host) -> FactRequest:
                # The probe runs alone; a pack that is staged already lends it its CRIU, and on
                # this machine the one that would be staged does.
                place = runtime_place(host, runtime or absent)
                if criu and entries[host.name].connector == "local":
                    place["pack"] = criu
                return FactRequest(_FACT, {**place, "max_age": 0.0})  # who asks wants it fresh

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
