"""``coldsnap bench``."""

import os
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldsnap.cli.options import command, group
from coldsnap.cli.session import Session

if TYPE_CHECKING:
    from coldsnap.cli.benching import Bench
    from coldsnap.render.bench import Measured

app = group("Measure on your own hosts what a restore saves.")


class PageCacheChoice(StrEnum):
    WARM = "warm"
    DROPPED = "dropped"
    BOTH = "both"


_COLD = typer.Option(min=1, max=100, metavar="N", help="Cold starts.")
_RESTORES = typer.Option(min=1, max=100, metavar="N", help="Restores, in each state.")
_PAGE_CACHE = typer.Option(help="State that each start begins from. Dropping slows the whole host.")
_COLD_DROPPED = typer.Option(
    min=0,
    max=100,
    metavar="N",
    help="Cold starts with the page cache dropped; 0 compares with warm ones.",
)
_CACHES_WARM = typer.Option(
    "--caches-warm", help="Compile caches are filled: no uncounted cold start."
)
_COLD_PLAN = typer.Option(
    metavar="PLAN", help="How units start cold. Default: the ENGINE.cold template."
)
_OUT = typer.Option(metavar="FILE", help="Write all figures as JSON, as they come.")
_MARKDOWN = typer.Option(metavar="FILE", help="Write a section for a document.")
_AT_LEAST = typer.Option(metavar="RATIO", help="Exit 1 if a unit's ratio is below it.")


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
        coldsnap bench cold-vs-restore capture.yaml restore.yaml --page-cache both --out bench.json --markdown bench.md
        coldsnap bench cold-vs-restore capture.yaml restore.yaml --cold-plan cold.yaml --at-least 10
    """,  # noqa: E501
)
def cold_vs_restore(
    session: Session,
    plan_capture: Annotated[str, typer.Argument(metavar="CAPTURE", help="Plan that captures.")],
    plan_restore: Annotated[str, typer.Argument(metavar="RESTORE", help="Plan that restores.")],
    cold: Annotated[int, _COLD] = 3,
    restores: Annotated[int, _RESTORES] = 5,
    page_cache: Annotated[PageCacheChoice, _PAGE_CACHE] = PageCacheChoice.WARM,
    cold_dropped: Annotated[int, _COLD_DROPPED] = 1,
    caches_warm: Annotated[bool, _CACHES_WARM] = False,
    cold_plan: Annotated[str, _COLD_PLAN] = "",
    out: Annotated[Path | None, _OUT] = None,
    markdown: Annotated[Path | None, _MARKDOWN] = None,
    at_least: Annotated[float, _AT_LEAST] = 0.0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Start units cold and restore them in turns; compare times to the first token.

    One of each goes before and is not counted, so that compile caches are warm. The units are
    killed with SIGKILL before every start; at the end they serve, restored.
    """
    from coldsnap.cli.bench_plans import plans_of
    from coldsnap.cli.benching import STATES, Bench, Counts, all_measured
    from coldsnap.cli.confirm import confirm
    from coldsnap.cli.wiring import fleet_of
    from coldsnap.render.bench import bench_text, compared

    plans = plans_of(session, plan_capture, plan_restore, cold_plan)
    states = STATES[page_cache.value]
    names = ", ".join(plans.units)
    dropping = " and drop the page cache" if "dropped" in states else ""
    confirm(f"Kill and start {names} again and again{dropping}?", yes=yes, stream=sys.stderr)
    counts = Counts(cold, restores, cold_dropped if "warm" in states else max(1, cold_dropped))
    with fleet_of(session) as fleet:
        made = Bench(session, fleet, plans)

        def keep(measured: "list[Measured]", *, complete: bool = False) -> dict[str, Any]:
            return _keep(made, measured, out, complete=complete)

        with made.cancellable():
            measured = all_measured(session, made, counts, states, keep, caches_warm=caches_warm)
    value = keep(measured, complete=True)
    units, facts = compared(measured), value["versions"]
    if markdown is not None:
        _write_markdown(markdown, units, facts, plans.capture.plan.name)
    session.answer(lambda: bench_text(units, facts, session.palette), value)
    raise typer.Exit(int(any(unit.ratio < at_least or not unit.is_same for unit in units)))


def _keep(
    bench: "Bench", measured: "list[Measured]", out: Path | None, *, complete: bool
) -> dict[str, Any]:
    """The figures so far as JSON, written where they shall be."""
    import json

    from coldsnap.artifact.files import write_named
    from coldsnap.cli.benching import versions
    from coldsnap.render.bench import bench_json, compared

    value = bench_json(compared(measured), versions(bench, sys.argv[1:]), complete=complete)
    value["measured"] = [one.to_json() for one in measured]
    if out is not None:
        write_named(out, (json.dumps(value, indent=1) + os.linesep).encode())
    return value


def _write_markdown(path: Path, units: Any, facts: Any, title: str) -> None:
    from coldsnap.artifact.files import write_named
    from coldsnap.render.bench_markdown import bench_markdown

    day = time.strftime("%Y-%m-%d")
    write_named(path, bench_markdown(units, facts, title, day).encode())


# The other commands of the group, which take `app` from here.
from coldsnap.cli.commands import bench_process  # noqa: E402, F401
