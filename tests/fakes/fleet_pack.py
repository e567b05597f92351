"""pyinfra facts and operations for the tests of the fleet; loaded in its child."""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections.abc import Generator
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from pyinfra import host
from pyinfra.api import FactBase, StringCommand, operation
from pyinfra.api.command import FunctionCommand
from pyinfra.api.facts import ShortFactBase


class Pair(NamedTuple):
    one: int
    two: int


class Echo(FactBase):
    """What a shell says to `text`."""

    def command(self, text: str) -> str:
        return f"printf %s {shlex.quote(text)}"


class Output(FactBase):
    """The lines that a command prints."""

    @staticmethod
    def default() -> list[str]:
        return []

    def command(self, command: str) -> str:
        return command

    def process(self, output: list[str]) -> list[str]:
        return list(output)


class Upper(ShortFactBase):
    fact = Echo

    def process_data(self, data: str) -> str:
        return data.upper()


class Typed(FactBase):
    """Values that JSON does not have."""

    command = "true; echo x"

    def process(self, output: list[str]) -> Any:
        return {1: {"b", "a"}, "day": date(2026, 11, 30), "pair": Pair(1, 2), "raw": b"\xff"}


class NeedsProgram(FactBase):
    command = "echo there"

    def requires_command(self, *_args: Any, **_kwargs: Any) -> str:
        return "no-such-program"

    @staticmethod
    def default() -> str:
        return "absent"


class Confused(FactBase):
    command = "echo 1"

    def process(self, output: list[str]) -> Any:
        raise ValueError("not what I expected")


class Suicide(FactBase):
    """Kills the child that asks it, the first time for a given file."""

    def command(self, once: str) -> str:
        if not Path(once).exists():
            Path(once).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "echo survived"


class Loud(FactBase):
    """Prints into the child's own standard output, where the protocol is."""

    def command(self) -> str:
        print("this must not get into the protocol")
        return "echo quiet"


@operation(is_idempotent=False)
def shell(command: str, stdin: str | None = None) -> Generator[StringCommand, None, None]:
    yield StringCommand(command, _stdin=stdin) if stdin else StringCommand(command)


@operation()
def present(path: str) -> Generator[str, None, None]:
    """Idempotent: looks first."""
    if host.get_fact(Output, command=f"ls {shlex.quote(path)} 2>/dev/null || true"):
        host.noop(f"{path} is there")
        return
    yield f"touch {shlex.quote(path)}"


@operation(is_idempotent=False, _set_in_op=False)
def calls_back(path: str) -> Generator[FunctionCommand, None, None]:
    """A Python callback that uses facts and a nested operation."""

    def work(path: str) -> None:
        assert host.get_fact(Echo, text="inside") == "inside"
        present(path=path)

    yield FunctionCommand(work, [path], {})


@operation(is_idempotent=False)
def broken() -> Generator[str, None, None]:
    raise RuntimeError("a defect in the operation")
    yield ""


@operation(is_idempotent=False)
def verb(
    verb: str,
    request: dict[str, Any],
    pack: str,
    python: str = "python3",
    state_dir: str = "/var/lib/coldsnap",
    job: str | None = None,
) -> Generator[StringCommand, None, None]:
    argv = [python, pack, verb, "--state-dir", state_dir, *(["--job", job] if job else [])]
    yield StringCommand(shlex.join(argv), _stdin=json.dumps(request))
