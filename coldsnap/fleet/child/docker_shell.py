"""Commands in a running container, through ``docker exec``."""

from __future__ import annotations

import shlex
from dataclasses import replace

from coldsnap.fleet.child.local_shell import LocalShell
from coldsnap.fleet.child.shells import (
    Command,
    GroupMark,
    as_is,
    discard,
    marked,
    run_killable,
)


class DockerShell:
    """Killing the docker client leaves the command running, so its group is killed inside."""

    def __init__(self, container: str, program: str = "docker") -> None:
        self._container = container
        self._program = program
        self._local = LocalShell()

    def run(self, command: Command) -> int:
        return run_killable(command, lambda stderr: self._run(command, stderr), self._run_quiet)

    def _run(self, command: Command, stderr: GroupMark) -> int:
        text = self._exec(marked(command.text))
        try:
            return self._local.run(replace(command, text=text, stderr=stderr, wrap=as_is))
        finally:
            stderr.close()

    def _run_quiet(self, text: str) -> None:
        self._local.run(Command(self._exec(text), stdout=discard, stderr=discard))

    def _exec(self, text: str) -> str:
        return shlex.join([self._program, "exec", "-i", self._container, "sh", "-c", text])
