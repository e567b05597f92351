"""``coldsnap runs``: what happened, from the journals of the project."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coldsnap.cli.options import command, group
from coldsnap.cli.session import Session

if TYPE_CHECKING:
    from coldsnap.engine.runs import RunSummary
    from coldsnap.render.report.model import RunReport

app = group("List, show, verify and report past runs.")

_RUN = typer.Argument(metavar="RUN", help="Run id, the beginning of one, or latest.")


@command(
    app,
    "list",
    examples="""
        coldsnap runs list
        coldsnap runs list --limit 5 --json
    """,
)
def list_(
    session: Session,
    limit: Annotated[int, typer.Option(help="Show so many, newest first.", min=1)] = 20,
) -> None:
    """List runs, newest first."""
    from coldsnap.engine.runs import RunFolder, Runs
    from coldsnap.render.runs import run_json, runs_text

    runs = Runs(session.project)
    found = [runs.summary(RunFolder(runs.root / i)) for i in reversed(runs.ids()[-limit:])]
    session.answer(lambda: runs_text(found, session.palette), [run_json(run) for run in found])


@command(
    app,
    examples="""
        coldsnap runs show latest
        coldsnap runs show 01JD --json
    """,
)
def show(session: Session, run: Annotated[str, _RUN] = "latest") -> None:
    """Show the steps of a run, what they did and what failed."""
    from coldsnap.render.report.text import report_text
    from coldsnap.render.runs import run_details_json

    summary, report = _reported(session, run)
    session.answer(lambda: report_text(report, session.palette), run_details_json(summary))
    if summary.fault is not None:
        raise summary.fault


@command(
    app,
    examples="""
        coldsnap runs report latest
        coldsnap runs report 01JD --html report.html
    """,
)
def report(
    session: Session,
    run: Annotated[str, _RUN] = "latest",
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one self-contained page.")
    ] = None,
) -> None:
    """Report a run: times per step and host, sizes, restore against cold start."""
    from coldsnap.render.report.html import report_html
    from coldsnap.render.report.text import report_text
    from coldsnap.render.runs import run_details_json

    summary, found = _reported(session, run)
    if html is None:
        session.answer(lambda: report_text(found, session.palette), run_details_json(summary))
        return
    from coldsnap.artifact.files import write_named

    write_named(html, report_html(found).encode())
    session.answer(str(html), {"run": summary.id, "html": str(html)})


@command(
    app,
    examples="""
        coldsnap runs verify latest
        coldsnap runs verify --json
    """,
)
def verify(session: Session, run: Annotated[str | None, _RUN] = None) -> None:
    """Check the hash chain of a run's journal, or of all journals."""
    from coldsnap.engine.runs import Runs
    from coldsnap.render.quantities import plural
    from coldsnap.render.runs import run_json

    runs = Runs(session.project)
    found = [_summary(session, run)] if run else runs.summaries()
    bad = [summary.fault for summary in found if summary.fault is not None]
    torn = sum(1 for summary in found if summary.torn_bytes)
    words = f"{plural(len(found) - len(bad), 'journal')} intact"
    if torn:
        words += f"; {torn} with a last line that a crash cut short"
    session.answer(words, [run_json(summary) for summary in found])
    if bad:
        first, *others = bad
        first.more = (*first.more, *others)
        raise first


def _reported(session: Session, name: str) -> "tuple[RunSummary, RunReport]":
    """A run and what is told of it.

    Raises:
        ColdSnapError: ``run.empty``; what is wrong with a journal that cannot be read.
    """
    from coldsnap.artifact.errors import ColdSnapError
    from coldsnap.render.report.model import report_of

    summary = _summary(session, name)
    if summary.history is None:
        raise summary.fault or ColdSnapError(
            "run.empty", f"run {summary.id} wrote nothing", remedy="see others: coldsnap runs list"
        )
    return summary, report_of(summary.history, summary.state)


def _summary(session: Session, name: str) -> "RunSummary":
    from coldsnap.engine.runs import Runs

    runs = Runs(session.project)
    return runs.summary(runs.find(name))
