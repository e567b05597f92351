"""From a released template to the running engine."""

from __future__ import annotations

import os
import runpy
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coldsnap_inside_template.command import Command
    from coldsnap_inside_template.parking import Release


def start(command: Command, release: Release) -> None:
    """Run the engine: in this process if its modules are here, else by exec."""
    os.environ.update(release.env)
    if not command.imports:
        os.execv(sys.executable, [sys.executable, *command.engine])  # noqa: S606
    run(command.engine)


def run(engine: tuple[str, ...]) -> None:
    """As the interpreter would: ``-m MODULE ...`` or ``SCRIPT ...``, as ``__main__``.

    Raises:
        SystemExit: other options of the interpreter.
    """
    first, *rest = engine
    if first == "-m" and rest:
        sys.argv = [rest[0], *rest[1:]]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif not first.startswith("-"):
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")
    else:
        raise SystemExit(f"a template cannot start an engine with {first}")
