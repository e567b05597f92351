"""``python -m coldsnap_inside_template [--import MODULE]... -- ENGINE ARGUMENTS``.

What follows ``--`` is the engine's command after its interpreter (``-m PACKAGE ...`` or a script).
With ``--import`` the modules are loaded first and the engine is started in this very process, so
that a restore has them for nothing. Without, or where they touched a device, the engine is
started by exec.
"""

from __future__ import annotations

import sys
import time

from coldsnap_inside_template.command import Command, read_command
from coldsnap_inside_template.imports import load
from coldsnap_inside_template.parking import park
from coldsnap_inside_template.starting import start


def main(arguments: list[str]) -> None:
    """Returns only by exceptions of the engine, or when it ends."""
    begin = time.clock_gettime(time.CLOCK_BOOTTIME)
    command = read_command(arguments)
    loaded = load(command.imports)
    if loaded.devices and command.imports:
        # What was loaded cannot be unloaded: a fresh process, which says why it is one.
        reason = f"its imports open {loaded.devices[0]}"
        Command((), command.engine, reason).replace_process()
    seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - begin
    start(command, park(command, loaded, seconds))


if __name__ == "__main__":
    main(sys.argv[1:])
