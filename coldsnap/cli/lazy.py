"""Groups whose commands are imported when they are called, so that start-up stays short."""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import typer
from typer.core import TyperGroup

from coldsnap.artifact.errors import ColdSnapError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Lazy:
    """Where a command lives: a module with a typer app, and its one-line summary."""

    module: str
    summary: str
    single: bool = False
    """True: the app's only command is meant, not a group."""
    attribute: str = "app"


class LazyGroup(TyperGroup):
    """A group that knows its commands by name only."""

    table: ClassVar[Mapping[str, Lazy]] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return list(self.table)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        del ctx
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        app: typer.Typer = getattr(importlib.import_module(entry.module), entry.attribute)
        # get_command makes a group of one command that command itself.
        build = typer.main.get_command if entry.single else typer.main.get_group
        command: Any = build(app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List names and summaries from the table; no command is imported for it."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self.table.items()])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As the base does, with the near name for a word that is no command."""
        if args and not args[0].startswith("-") and args[0] not in self.table:
            raise unknown_command(args[0], list(self.table), ctx.command_path)
        return super().resolve_command(ctx, args)


class Group(TyperGroup):
    """A group of commands in their order of definition, with the near name for a wrong one."""

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            raise unknown_command(args[0], list(self.commands), ctx.command_path)
        return super().resolve_command(ctx, args)


def unknown_command(word: str, names: list[str], path: str) -> ColdSnapError:
    near = difflib.get_close_matches(word, names, n=1)
    hint = f'did you mean "{path} {near[0]}"?  ' if near else ""
    return ColdSnapError(
        "cli.unknown-command",
        f'"{path}" has no command "{word}"',
        remedy=f"{hint}See: {path} --help",
    )
