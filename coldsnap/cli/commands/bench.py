"""``coldsnap bench``."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from coldsnap.cli.options import command, group
from coldsnap.cli.session import Session

if TYPE_CHECKING:
    from coldsnap.cli.benching import Bench
    from coldsnap.render.bench import Measured

app = group("Measure on your own hosts what a restore saves.")


@app.callback()
def bench() -> None:
    """Measure on your own hosts what a restore saves."""


@command(
    app,
    "cold-vs-restore",
    fleet=True,
    variables=True,
    examples="""
        coldsnap bench cold-vs-restore plans/reference/capture.yaml plans/reference/restore.yaml --var model=model --yes
        coldsnap bench cold-vs-restore capture.yaml restore.yaml --cold 3 --restores 5 --json
        coldsnap bench cold-vs-restore capture.yaml restore.yaml --cold-plan cold.yaml --at-least 10
    """,  # noqa: E501
)
def cold_vs_restore(
    session: Session,
    plan_capture: Annotated[str, typer.Argument(metavar="CAPTURE", help="Plan that captures.")],
    plan_restore: Annotated[str, typer.Argument(metavar="RESTORE", help="Plan that restores.")],
    cold: Annotated[int, typer.Option(min=1, max=100, metavar="N", help="Cold starts.")] = 3,
    restores: Annotated[int, typer.Option(min=1, max=100, metavar="N", help="Restores.")] = 5,
    cold_plan: Annotated[
        str,
        typer.Option(
            metavar="PLAN", help="How units start cold. Default: the ENGINE.cold template."
        ),
    ] = "",
    at_least: Annotated[
        float, typer.Option(metavar="RATIO", help="Exit 1 if a unit's ratio is below it.")
    ] = 0.0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Start units cold and restore them in turns; compare times to the first token.

    One of each goes before and is not counted: compile caches and the page cache are warm for
    both. The units are killed before every start; at the end they serve, restored.
    """
    from coldsnap.cli.benching import Bench, plans_of, versions
    from coldsnap.cli.confirm import confirm
    from coldsnap.cli.wiring import fleet_of
    from coldsnap.render.bench import bench_json, bench_text, compared

    plans = plans_of(session, plan_capture, plan_restore, cold_plan)
    names = ", ".join(plans.units)
    confirm(f"Kill and start {names} again and again?", yes=yes, stream=sys.stderr)
    with fleet_of(session) as fleet:
        made = Bench(session, fleet, plans)
        with made.cancellable():
            measured = _in_turns(session, made, cold, restores)
    units = compared(measured)
    facts = {**versions(made), "load": list(os.getloadavg())}
    session.answer(lambda: bench_text(units, facts, session.palette), bench_json(units, facts))
    raise typer.Exit(int(any(unit.ratio < at_least or not unit.is_same for unit in units)))


def _in_turns(session: Session, bench: "Bench", cold: int, restores: int) -> "list[Measured]":
    """All measurements; cold starts and restores are spread over each other."""
    from dataclasses import replace

    session.story("capturing, if this was not captured before")
    bench.captured()
    session.story("one cold start and one restore that are not counted")
    bench.cold()
    bench.restored()
    measured: list[Measured] = []
    rounds = max(cold, restores)
    turns = (("cold start", cold, bench.cold), ("restore", restores, bench.restored))
    for number in range(rounds):
        # The last round ends with a restore: the units serve afterwards.
        for kind, count, run in turns:
            if number >= rounds - count:
                done = [replace(one, load=os.getloadavg()[0]) for one in run()]
                measured += done
                for one in done:
                    place = f"{one.unit} on {one.host}"
                    session.story(f"{kind} of {place}: {one.first_token_seconds:.2f} s")
    return measured
