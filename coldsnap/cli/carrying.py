"""Carrying a plan out with progress and two-stage cancel, and saying how it ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from coldsnap.cli.signals import handed_over
from coldsnap.cli.streams import OutputError, lost

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldsnap.cli.session import Session
    from coldsnap.engine.outcome import RunResult
    from coldsnap.engine.setup import Setup


def carry_out(session: Session, setup: Setup, work: Callable[[Setup], RunResult]) -> RunResult:
    """`work` with the session's progress; SIGINT and SIGTERM go to its cancel token.

    Raises:
        ColdSnapError: what `work` raises before anything is changed.
    """
    with session.progress() as progress, handed_over(setup.cancel.request):
        return work(replace(setup, sink=progress))


def say(session: Session, result: RunResult, *, quiet: bool = False) -> None:
    """Answer with what came of it; errors go to stderr. `quiet` leaves stdout to others.

    An answer that cannot be written is told and changes nothing about how the run ended.
    """
    try:
        _answer(session, result, quiet=quiet)
    except OutputError as error:
        if told := lost(error):
            session.error(told)
    for failed in result.errors:
        session.error(failed)


def _answer(session: Session, result: RunResult, *, quiet: bool) -> None:
    from coldsnap.engine.runs import RunFolder, Runs
    from coldsnap.render.report.model import report_of
    from coldsnap.render.report.text import closing_text, result_json

    summary = Runs(session.project).summary(RunFolder(Path(result.folder)))
    report = report_of(summary.history, result.state.value) if summary.history else None
    if report:
        # What this command took: the run itself may have begun long before a resume or rollback.
        report = replace(report, seconds=result.seconds or None)
    if not quiet:
        session.answer(
            lambda: closing_text(report, _near(result.folder), session.palette) if report else "",
            result_json(result),
        )


def _near(folder: str) -> str:
    """Relative to the working folder where it is below it."""
    path, here = Path(folder).absolute(), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else folder
