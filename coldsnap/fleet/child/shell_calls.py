"""Plain shell commands of the fleet itself (uploads look at files and put them in place)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pyinfra.api.command import StringCommand

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet.child.facts import host_arguments
from coldsnap.fleet.child.failures import lost_error, sudo_refusal
from coldsnap.fleet.child.shells import ConnectionLostError, Group, kill_same_script
from coldsnap.fleet.child.targets import Target

_END_SECONDS = 10.0


def call(target: Target, command: str, timeout: float) -> dict[str, Any]:
    """``{"status", "stdout", "stderr"}`` of shell text run as the inventory's user.

    Raises:
        ColdSnapError: ``host.timeout``, ``host.unreachable``, ``host.sudo-refused``.
    """
    try:
        with target.lane() as lane:
            arguments = {**host_arguments(lane), "_timeout": timeout}
            lane.host.run_shell_command(StringCommand(command), **arguments)
            if refused := sudo_refusal(target.address, lane.last):
                raise refused
            return {
                "status": lane.last.status,
                "stdout": lane.last.stdout.text(),
                "stderr": lane.last.stderr.text(),
            }
    except ConnectionLostError as error:
        raise lost_error(target.address, str(error), changed=False) from error
    except TimeoutError:
        message = f"a command did not end within {timeout:g} s"
        raise ColdSnapError("host.timeout", message, where=target.name) from None


def end_group(target: Target, group: Group | None) -> None:
    """Kill what a lost connection may have left running, if the host can be reached again."""
    if group is not None:
        with suppress(ColdSnapError):
            call(target, kill_same_script(group), _END_SECONDS)
