"""pyinfra's connectors with our execution: bounded output, real exit codes, remote killing.

Building the command line (sudo, env, chdir) stays pyinfra's; running it is the lane's shell.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from paramiko import SFTPClient
from pyinfra.api.command import StringCommand
from pyinfra.connectors.docker import DockerConnector
from pyinfra.connectors.local import LocalConnector
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.util import CommandOutput, OutputLine, make_unix_command_for_host

from coldsnap.fleet.child.lane import Lane, Outcome

_USER_KEYS = (
    "_sudo", "_sudo_user", "_use_sudo_login", "_sudo_password", "_preserve_sudo_env", "_su_user",
    "_use_su_login", "_preserve_su_env", "_su_shell", "_su_password", "_doas", "_doas_user",
    "_dzdo", "_dzdo_user", "_temp_dir",
)  # fmt: skip
"""Arguments that decide as whom a command runs."""


class Guarded:
    """Mixed in before a pyinfra connector."""

    lane: Lane
    state: Any
    host: Any

    def run_shell_command(
        self,
        command: StringCommand,
        print_output: bool = False,
        print_input: bool = False,
        **arguments: Any,
    ) -> tuple[bool, CommandOutput]:
        """As pyinfra's connectors do it; never asks for a password."""
        del print_output, print_input
        pty = bool(arguments.pop("_get_pty", False))
        timeout = arguments.pop("_timeout", None)
        stdin = stdin_bytes(arguments.pop("_stdin", None))
        success = tuple(arguments.pop("_success_exit_codes", None) or (0,))
        user = {key: arguments[key] for key in _USER_KEYS if key in arguments}

        def wrap(text: str) -> str:
            made = make_unix_command_for_host(self.state, self.host, StringCommand(text), **user)
            return str(made.get_raw_value())

        made = make_unix_command_for_host(self.state, self.host, command, **arguments)
        outcome = self.lane.run(
            made.get_raw_value(), stdin=stdin, timeout=timeout or None, pty=pty, wrap=wrap
        )
        return outcome.status in success, command_output(outcome)


def stdin_bytes(value: Any) -> bytes:
    """The `_stdin` of pyinfra (text, lines or a file) as bytes, each line ended."""
    if value is None:
        return b""
    if hasattr(value, "readlines"):
        value = value.readlines()
    lines: Iterable[Any] = value if isinstance(value, (list, tuple)) else [value]
    encoded = (line if isinstance(line, bytes) else str(line).encode() for line in lines)
    return b"".join(line if line.endswith(b"\n") else line + b"\n" for line in encoded)


def command_output(outcome: Outcome) -> CommandOutput:
    lines = [OutputLine("stdout", line) for line in text_lines(outcome.stdout.text())]
    lines += [OutputLine("stderr", line) for line in text_lines(outcome.stderr.text())]
    return CommandOutput(lines)


def text_lines(text: str) -> list[str]:
    """Lines without their ends, as pyinfra gives them to facts."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


class Local(Guarded, LocalConnector):
    pass


class Ssh(Guarded, SSHConnector):
    _files: Any = None

    def get_file_transfer_connection(self) -> Any:
        """Without pyinfra's cache: it finds clients by the object's address, and so closed ones."""
        if self._files is None:
            client: Any = self.client
            self._files = SFTPClient.from_transport(client.get_transport())
        return self._files

    def disconnect(self) -> None:
        if self._files is not None:
            self._files.close()
            self._files = None


class Docker(Guarded, DockerConnector):
    def disconnect(self) -> None:
        """Leave the container alone: pyinfra commits and removes those that it started."""
