"""The app to which the modules of ``coldsnap plan`` add their commands."""

import typer

from coldsnap.cli.options import group

app = group("Write, check, preview and apply plans.")

PLAN = typer.Argument(metavar="PLAN", help="Plan file.")
PLAN_OR_SAVED = typer.Argument(metavar="PLAN", help="Plan file, or a plan saved by plan diff.")
RUN = typer.Argument(metavar="RUN", help="Run id, the beginning of one, or latest.")

ONLY = typer.Option(metavar="STEP", help="Only this step or template use; repeatable.")
FROM = typer.Option("--from", metavar="STEP", help="These steps and what needs them.")
UNTIL = typer.Option(metavar="STEP", help="These steps and what they need.")
