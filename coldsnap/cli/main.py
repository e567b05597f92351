"""The console script: every outcome becomes an exit code, and nothing escapes as a traceback."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from coldsnap import __version__
from coldsnap.cli.outcome import exit_code_of
from coldsnap.cli.signals import raise_on_terminate
from coldsnap.cli.streams import prepare

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(arguments: Sequence[str] | None = None) -> None:
    """Entry point of ``coldsnap``; exits the process."""
    prepare()
    raise_on_terminate()
    sys.exit(execute(list(sys.argv[1:] if arguments is None else arguments)))


def execute(arguments: list[str]) -> int:
    """Run one command line and give its exit code; nothing escapes but SystemExit."""
    return exit_code_of(lambda: _call(arguments), arguments)


def _call(arguments: list[str]) -> object:
    if arguments in (["version"], ["--version"]) and "_COLDSNAP_COMPLETE" not in os.environ:
        # The parser's coercion alone takes longer than a script that asks this should wait.
        sys.stdout.write(f"coldsnap {__version__}\n")
        return None
    from coldsnap.cli.tree import parser

    return parser().main(args=arguments, prog_name="coldsnap", standalone_mode=False)
