"""The command tree: what there is, in the order in which ``--help`` lists it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from coldsnap.cli.lazy import Lazy, LazyGroup
from coldsnap.cli.options import root_options

if TYPE_CHECKING:
    from collections.abc import Mapping

_PACKAGE = "coldsnap.cli.commands"


def _one(module: str, summary: str) -> Lazy:
    return Lazy(f"{_PACKAGE}.{module}", summary, single=True)


def _operation(name: str) -> Lazy:
    summary = f"Carry out a {name} request (format 4)."
    return Lazy(f"{_PACKAGE}.operation", summary, single=True, attribute=name)


def _group(module: str, summary: str) -> Lazy:
    return Lazy(f"{_PACKAGE}.{module}", summary)


class Root(LazyGroup):
    """The commands, in the order in which ``--help`` lists them."""

    table: ClassVar[Mapping[str, Lazy]] = {
        "plan": _group("plan", "Write, check, preview and apply plans."),
        "runs": _group("runs", "List, show, verify and report past runs."),
        "status": _one("status", "Show which units run where, and in which state."),
        "doctor": _one("doctor", "Tell what each host can do, what it lacks and how to get it."),
        "artifact": _group("artifact", "List, inspect, verify, compare and delete captures."),
        "payload": _group("payload", "Make, list and verify payload packs."),
        "runtime": _group("runtime", "Build, show, verify and clean up the runtime pack."),
        "bench": _group("bench", "Measure on your own hosts what a restore saves."),
        "step": _group("step", "List, describe and scaffold step types."),
        "capture": _operation("capture"),
        "restore": _operation("restore"),
        "sleep": _operation("sleep"),
        "wake": _operation("wake"),
        "capabilities": _one("capabilities", "Print what this build can do, as JSON."),
        "config": _group("config", "Show settings and where each one came from."),
        "completion": _one("completion", "Print the completion script of a shell."),
        "version": _one("version", "Print the version."),
    }


app = typer.Typer(
    cls=Root,
    name="coldsnap",
    help=(
        "Capture an initialised LLM inference engine once, bring it back in seconds.\n\n"
        "Captures and restores are plans: YAML files that are checked, previewed as a diff and\n"
        "applied to the hosts of an inventory."
    ),
    epilog=(
        "\b\nExamples:\n"
        "  coldsnap doctor\n"
        "  coldsnap plan diff plans/reference/capture.yaml --var model=model\n"
        "  coldsnap plan apply plans/reference/capture.yaml --var model=model --yes\n"
        "  coldsnap runs report RUN --html report.html"
    ),
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback()(root_options)


def parser() -> Any:
    """The command object of the whole tree."""
    if "_COLDSNAP_COMPLETE" in os.environ:
        # Teach it the shells' completion protocols; only when a shell asks.
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    return typer.main.get_command(app)
