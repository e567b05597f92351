"""The template's own command line."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import NoReturn

MODULE = "coldsnap_inside_template"
_END = "--"


@dataclass(frozen=True)
class Command:
    imports: tuple[str, ...]
    """Modules to load before parking; none: the engine gets a process image of its own."""
    engine: tuple[str, ...]
    """What the interpreter is told to run."""
    reason: str = ""
    """Why nothing is loaded although it was asked for."""

    def replace_process(self) -> NoReturn:
        """Begin again as this command, with nothing of the process left but its number."""
        imports = [word for name in self.imports for word in ("--import", name)]
        reason = ["--reason", self.reason] if self.reason else []
        words = ["-m", MODULE, *imports, *reason, _END, *self.engine]
        os.execv(sys.executable, [sys.executable, *words])  # noqa: S606


def read_command(arguments: list[str]) -> Command:
    """Raises SystemExit for what is not such a command line."""
    if _END not in arguments:
        raise SystemExit(f"usage: python -m {MODULE} [--import MODULE]... -- ENGINE ARGUMENTS")
    end = arguments.index(_END)
    own, engine = arguments[:end], arguments[end + 1 :]
    imports: list[str] = []
    reason = ""
    for option, value in zip(own[::2], own[1::2], strict=True):
        if option == "--import":
            imports.append(value)
        elif option == "--reason":
            reason = value
        else:
            raise SystemExit(f"{MODULE}: unknown option {option}")
    if not engine:
        raise SystemExit(f"{MODULE}: no engine after {_END}")
    return Command(tuple(imports), tuple(engine), reason)
