"""Options that many commands share, and the decorator that gives them to a command.

No ``from __future__ import annotations`` here: typer reads the annotations at run time.
"""

import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from coldsnap.cli.lazy import Group
from coldsnap.cli.session import Flags, Session, merged
from coldsnap.cli.wiring import start_fleet_early
from coldsnap.render.palette import ColorMode
from coldsnap.render.progress import ProgressMode

_INVENTORY = typer.Option(
    "--inventory",
    "-i",
    metavar="FILE",
    help="Hosts to act on; @local is this machine. "
    "Default: inventories/local.yaml if it exists, else @local.",
)
_VARIABLE = typer.Option("--var", metavar="NAME=VALUE", help="Set a variable; may be repeated.")
_VARIABLE_FILE = typer.Option(
    "--var-file", metavar="FILE", help="Read variables from a YAML or JSON file."
)
_STORE = typer.Option("--store", metavar="URI", help="Where captures live.")
_PROJECT = typer.Option(
    "--project",
    metavar="DIR",
    help="Folder that holds coldsnap.yaml and .coldsnap. Default: found upwards from here.",
)
_JSON = typer.Option("--json", help="Answer in JSON on stdout.")
_PROGRESS = typer.Option("--progress", help="How progress is told on stderr.", metavar="MODE")
_COLOR = typer.Option("--color", help="Colour: auto, always or never.", metavar="WHEN")
_VERBOSE = typer.Option(
    "--verbose", "-v", count=True, show_default=False, help="Tell more of the story."
)

_COMMON: dict[str, tuple[Any, Any]] = {
    "project": (Annotated[Path | None, _PROJECT], None),
    "json": (Annotated[bool, _JSON], False),
    "progress": (Annotated[ProgressMode | None, _PROGRESS], None),
    "color": (Annotated[ColorMode | None, _COLOR], None),
    "verbose": (Annotated[int, _VERBOSE], 0),
}
_FLEET: dict[str, tuple[Any, Any]] = {"inventory": (Annotated[str | None, _INVENTORY], None)}
_VARS: dict[str, tuple[Any, Any]] = {
    "variables": (Annotated[list[str] | None, _VARIABLE], None),
    "variable_files": (Annotated[list[Path] | None, _VARIABLE_FILE], None),
}
_STORES: dict[str, tuple[Any, Any]] = {"store": (Annotated[str | None, _STORE], None)}


def group(help_text: str) -> typer.Typer:
    """An app for a group of commands."""
    return typer.Typer(
        cls=Group,
        help=help_text,
        no_args_is_help=True,
        rich_markup_mode=None,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def command(
    app: typer.Typer,
    name: str | None = None,
    *,
    examples: str,
    fleet: bool = False,
    variables: bool = False,
    store: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a function to `app`; its first parameter is the `Session`, the others are its own.

    The options of every command, and those of the sets asked for, come after its own.
    """
    shared = {
        **(_FLEET if fleet else {}),
        **(_VARS if variables else {}),
        **(_STORES if store else {}),
        **_COMMON,
    }

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        def call(context: typer.Context, **values: Any) -> None:
            given = {key: values.pop(key) for key in shared}
            session = Session(merged(context.obj, _given(given)))
            if fleet:
                start_fleet_early(session)
            function(session, **values)

        own = list(inspect.signature(function).parameters.values())[1:]
        common = [_parameter(key, *hint) for key, hint in shared.items()]
        first = inspect.Parameter(
            "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
        )
        keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *common)]
        call.__signature__ = inspect.Signature([first, *keywords])  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in (first, *keywords)}
        call.__doc__ = function.__doc__
        app.command(
            name or function.__name__.rstrip("_").replace("_", "-"),
            epilog="\b\nExamples:\n" + textwrap.indent(textwrap.dedent(examples).strip(), "  "),
        )(call)
        return function

    return decorate


def root_options(
    context: typer.Context,
    inventory: Annotated[str | None, _INVENTORY] = None,
    variables: Annotated[list[str] | None, _VARIABLE] = None,
    variable_files: Annotated[list[Path] | None, _VARIABLE_FILE] = None,
    store: Annotated[str | None, _STORE] = None,
    project: Annotated[Path | None, _PROJECT] = None,
    json: Annotated[bool, _JSON] = False,
    progress: Annotated[ProgressMode | None, _PROGRESS] = None,
    color: Annotated[ColorMode | None, _COLOR] = None,
    verbose: Annotated[int, _VERBOSE] = 0,
) -> None:
    """Options may also stand before the command."""
    given = {
        "inventory": inventory,
        "variables": variables,
        "variable_files": variable_files,
        "store": store,
        "project": project,
        "json": json,
        "progress": progress,
        "color": color,
        "verbose": verbose,
    }
    context.obj = Flags(**_given(given))


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """Lists as tuples, modes as their text."""
    for key in ("variables", "variable_files"):
        if key in values:
            values[key] = tuple(values[key] or ())
    for key in ("progress", "color"):
        if values.get(key) is not None:
            values[key] = values[key].value
    return values


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
