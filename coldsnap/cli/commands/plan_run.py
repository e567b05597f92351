"""``plan diff``, ``apply``, ``resume``, ``rollback``: what reaches hosts."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coldsnap.cli.commands.plan_app import FROM, ONLY, PLAN, PLAN_OR_SAVED, RUN, UNTIL, app
from coldsnap.cli.options import command
from coldsnap.cli.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldsnap.engine.outcome import RunResult
    from coldsnap.engine.preview import Preview
    from coldsnap.engine.setup import Setup


@command(
    app,
    fleet=True,
    variables=True,
    examples="""
        coldsnap plan diff plans/reference/capture.yaml --var model=model
        coldsnap plan diff plans/reference/restore.yaml --var model=model --out restore.plan
        coldsnap plan diff plans/reference/restore.yaml --var model=model --detailed-exitcode
    """,
)
def diff(
    session: Session,
    plan: Annotated[str, PLAN],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Save it, to apply exactly.")
    ] = None,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit 2 if there is something to do.")
    ] = False,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show steps that have nothing to do too.")
    ] = False,
    only: Annotated[list[str] | None, ONLY] = None,
    from_: Annotated[list[str] | None, FROM] = None,
    until: Annotated[list[str] | None, UNTIL] = None,
) -> None:
    """Look at every host and show what applying the plan would do; change nothing."""
    from coldsnap.cli.plans import load, sliced, working
    from coldsnap.engine.outcome import exit_code_of_preview
    from coldsnap.engine.saved import save_plan
    from coldsnap.engine.surveying import preview
    from coldsnap.render.preview import preview_json

    loaded = load(session, plan)
    selected = sliced(loaded.plan, only or (), from_ or (), until or ())
    with working(session, loaded, selected=selected) as setup:
        found = preview(setup)
        saved = save_plan(setup, found, out) if out is not None and not found.errors else None

    def text() -> str:
        shown = _shown(found, session, show_all=show_all)
        if saved is None:
            return shown
        return f"{shown}\nSaved to {saved.path}. Next: coldsnap plan apply {saved.path}"

    session.answer(text, preview_json(found) | {"saved": saved.path if saved else None})
    for error in found.errors:
        session.error(error)
    raise typer.Exit(exit_code_of_preview(found, detailed=detailed_exitcode))


@command(
    app,
    fleet=True,
    variables=True,
    examples="""
        coldsnap plan apply plans/reference/capture.yaml --var model=model
        coldsnap plan apply plans/reference/capture.yaml --var model=model --yes
        coldsnap plan apply restore.plan
    """,
)
def apply(
    session: Session,
    plan: Annotated[str, PLAN_OR_SAVED],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    only: Annotated[list[str] | None, ONLY] = None,
    from_: Annotated[list[str] | None, FROM] = None,
    until: Annotated[list[str] | None, UNTIL] = None,
) -> None:
    """Carry a plan out: ask first, show progress, keep a journal."""
    from coldsnap.cli.plans import load, sliced, working
    from coldsnap.engine.applying import apply as apply_plan

    loaded = load(session, plan)
    if loaded.saved is not None:
        selected = loaded.saved.selected
    else:
        selected = sliced(loaded.plan, only or (), from_ or (), until or ())
        _check_terminal(yes=yes)
    with working(session, loaded, selected=selected) as setup:
        # A saved plan was reviewed already, and is applied only if nothing changed since.
        if not yes and loaded.saved is None and not _agreed(session, setup):
            return
        _run(session, setup, lambda prepared: apply_plan(prepared, loaded.saved))


@command(
    app,
    fleet=True,
    examples="""
        coldsnap plan resume latest
        coldsnap plan resume 01JD
    """,
)
def resume(
    session: Session,
    run: Annotated[str, RUN] = "latest",
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Agreed to before: resume never asks.")
    ] = False,
) -> None:
    """Go on with a run after its last good step, also after a crash or a reboot."""
    del yes  # the run was agreed to; accepted, so that it goes beside rollback in scripts
    from coldsnap.cli.plans import load_recorded, working
    from coldsnap.engine.resuming import resume as resume_run
    from coldsnap.engine.runs import Runs

    folder = Runs(session.project).find(run)
    loaded = load_recorded(session, folder)
    with working(session, loaded) as setup:
        _run(session, setup, lambda prepared: resume_run(prepared, folder))


@command(
    app,
    fleet=True,
    examples="""
        coldsnap plan rollback latest
        coldsnap plan rollback 01JD --yes
    """,
)
def rollback(
    session: Session,
    run: Annotated[str, RUN] = "latest",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Put back everything that an unfinished run changed, newest first."""
    from coldsnap.cli.confirm import confirm
    from coldsnap.cli.plans import load_recorded, working
    from coldsnap.engine.rolling_back import rollback as roll_back
    from coldsnap.engine.runs import Runs

    folder = Runs(session.project).find(run)
    loaded = load_recorded(session, folder)
    confirm(f"Put back what run {folder.id} changed?", yes=yes, stream=sys.stderr)
    with working(session, loaded) as setup:
        _run(session, setup, lambda prepared: roll_back(prepared, folder))


def _check_terminal(*, yes: bool) -> None:
    """Refuse before anything is looked at, not after."""
    from coldsnap.artifact.errors import ColdSnapError

    if not yes and not sys.stdin.isatty():
        raise ColdSnapError(
            "cli.not-confirmed",
            "applying a plan needs a yes, and there is no terminal to ask on",
            remedy="add --yes, or save it with plan diff --out FILE and apply the file",
        )


def _agreed(session: Session, setup: "Setup") -> bool:
    """Show the preview and ask; False when there is nothing to do.

    Raises:
        ColdSnapError: what the preview found that cannot be done; ``cli.declined``.
    """
    from coldsnap.cli.confirm import confirm
    from coldsnap.engine.surveying import preview

    found = preview(setup)
    sys.stderr.write(_shown(found, session, show_all=False) + "\n\n")
    if found.errors:
        first, *others = found.errors
        first.more = (*first.more, *others)
        raise first
    if not found.is_pending:
        session.answer("", {"state": "succeeded", "changed": 0, "run": None})
        return False
    confirm("Apply this?", yes=False, stream=sys.stderr)
    return True


def _run(session: Session, setup: "Setup", work: "Callable[[Setup], RunResult]") -> None:
    """Carry it out, say how it ended, leave with its exit code."""
    from coldsnap.cli.carrying import carry_out, say

    result = carry_out(session, setup, work)
    say(session, result)
    raise typer.Exit(result.exit_code)


def _shown(found: "Preview", session: Session, *, show_all: bool) -> str:
    from coldsnap.render.preview import preview_text

    return preview_text(found, session.palette, show_all=show_all)
