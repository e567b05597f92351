"""One invocation: its settings, its streams, and the two ways to speak.

`answer` goes to stdout and is what was asked for; `story` goes to stderr and is how it went.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.cli.settings import Settings, resolve
from coldsnap.render.errors import error_json, error_text
from coldsnap.render.palette import ColorMode, Palette, clean, wants_color
from coldsnap.render.progress import Progress, ProgressMode, open_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coldsnap.artifact.errors import ColdSnapError


@dataclass(frozen=True)
class Flags:
    """Options of every command, as given; None and empty mean not given."""

    inventory: str | None = None
    variables: tuple[str, ...] = ()
    variable_files: tuple[Path, ...] = ()
    project: Path | None = None
    store: str | None = None
    json: bool = False
    progress: str | None = None
    color: str | None = None
    verbose: int = 0

    def over(self, outer: Flags) -> Flags:
        """These flags, and where they are silent those given before the command's name."""
        return Flags(
            inventory=self.inventory or outer.inventory,
            variables=(*outer.variables, *self.variables),
            variable_files=(*outer.variable_files, *self.variable_files),
            project=self.project or outer.project,
            store=self.store or outer.store,
            json=self.json or outer.json,
            progress=self.progress or outer.progress,
            color=self.color or outer.color,
            verbose=max(self.verbose, outer.verbose),
        )


@dataclass
class Session:
    flags: Flags
    _settings: Settings | None = field(default=None, repr=False)

    @property
    def settings(self) -> Settings:
        """Resolved when first asked for: short commands read no files."""
        if self._settings is None:
            self._settings = resolve(
                {
                    "inventory": self.flags.inventory,
                    "store": self.flags.store,
                    "progress": self.flags.progress,
                    "color": self.flags.color,
                },
                project=self.flags.project,
            )
        return self._settings

    @property
    def project(self) -> Path:
        return self.settings.project

    @property
    def palette(self) -> Palette:
        """Colours of stdout."""
        return Palette(wants_color(ColorMode(self.settings["color"]), sys.stdout))

    @property
    def story_palette(self) -> Palette:
        """Colours of stderr."""
        return Palette(wants_color(ColorMode(self.settings["color"]), sys.stderr))

    def answer(self, text: str | Callable[[], str], data: object) -> None:
        """Print what was asked for: `data` as JSON with ``--json``, else `text`."""
        if self.flags.json:
            sys.stdout.write(json.dumps(data, indent=2, default=str) + "\n")
        else:
            shown = text if isinstance(text, str) else text()
            sys.stdout.write(shown + "\n" if shown else "")
        sys.stdout.flush()

    def story(self, text: str) -> None:
        """One line on stderr, unless ``--progress none``."""
        if self.settings["progress"] != "none":
            sys.stderr.write(clean(text) + "\n")
            sys.stderr.flush()

    def progress(self) -> Progress:
        """Progress as the settings want it, on stderr."""
        return open_progress(
            ProgressMode(self.settings["progress"]),
            sys.stderr,
            color=self.story_palette.enabled,
            verbose=self.flags.verbose > 0,
        )

    def error(self, error: ColdSnapError) -> None:
        """Show an error beside an answer, without ending the command."""
        sys.stderr.write(error_text(error, self.story_palette) + "\n")


def show_error(error: ColdSnapError, arguments: Sequence[str]) -> None:
    """Show what ended the command: text on stderr; with ``--json`` the object on stdout too.

    Works from the raw arguments, because parsing them may be what failed.
    """
    palette = Palette(wants_color(_color(arguments), sys.stderr))
    try:
        sys.stdout.flush()
        if "--json" in arguments:
            sys.stdout.write(json.dumps(error_json(error), indent=2) + "\n")
            sys.stdout.flush()
        sys.stderr.write(error_text(error, palette) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def _color(arguments: Sequence[str]) -> ColorMode:
    for index, argument in enumerate(arguments):
        value = argument.partition("=")[2] if argument.startswith("--color=") else ""
        if argument == "--color" and index + 1 < len(arguments):
            value = arguments[index + 1]
        if value in list(ColorMode):
            return ColorMode(value)
    return ColorMode.AUTO


def merged(outer: object, given: Mapping[str, Any]) -> Flags:
    """Flags of a command over those of the root; `outer` is the root context's object."""
    flags = Flags(**given)
    return flags.over(outer) if isinstance(outer, Flags) else flags
