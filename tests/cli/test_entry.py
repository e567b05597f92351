"""Streams, colour, exit codes, help: what holds for every command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.cli import outcome
from coldsnap.cli.lazy import LazyGroup
from coldsnap.cli.signals import Terminated
from coldsnap.cli.tree import Root, app
from coldsnap.engine.outcome import exit_code_of_error


def commands() -> Iterator[tuple[str, ...]]:
    """Path of every command and group."""

    def walk(path: tuple[str, ...], command: Any) -> Iterator[tuple[str, ...]]:
        yield path
        if isinstance(command, LazyGroup) or hasattr(command, "commands"):
            for name in command.list_commands(None):
                yield from walk((*path, name), command.get_command(None, name))

    yield from walk((), typer.main.get_command(app))


def find(path: tuple[str, ...]) -> Any:
    command: Any = typer.main.get_command(app)
    for name in path:
        command = command.get_command(None, name)
    return command


COMMANDS = sorted(commands())


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_says_what_it_is_for(path: tuple[str, ...]) -> None:
    command = find(path)
    summary = (command.help or "").strip().splitlines()[0]
    assert summary.endswith(".")
    assert len(summary) <= 80
    if not getattr(command, "commands", None) and path:
        assert command.epilog.startswith("\b\nExamples:\n  ")
        assert " ".join(("coldsnap", *path)) in command.epilog
        undocumented = [p.name for p in command.params if not getattr(p, "help", None)]
        assert undocumented == []


@pytest.mark.parametrize("name", Root.table)
def test_summaries_of_the_table_are_those_of_the_commands(name: str) -> None:
    assert find((name,)).help.strip().splitlines()[0] == Root.table[name].summary


def test_help_goes_to_stdout(cli, golden) -> None:
    done = cli("--help")
    assert done.err == ""
    golden("help.txt", done.out)
    assert cli("runs", "list", "-h").out.startswith("Usage: coldsnap runs list [OPTIONS]")


def test_version(cli) -> None:
    assert cli("version").out == "coldsnap 0.1.0\n"
    assert cli("version", "--json").json["coldsnap"] == "0.1.0"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("version", "--nope"), "error[cli.usage]: No such option: --nope"),
        (("nope",), 'error[cli.unknown-command]: "coldsnap" has no command "nope"'),
        (("runs", "lst"), 'did you mean "coldsnap runs list"?'),
        (("runs", "list", "--limit", "x"), "error[cli.usage]: Invalid value for '--limit'"),
        (("payload", "list"), "error[cli.usage]: Missing argument 'PACK'"),
        (("runs", "list", "--color", "pink"), "error[cli.usage]: Invalid value for '--color'"),
        (("version", "extra"), "error[cli.usage]: Got unexpected extra argument"),
        (("runs",), "Usage: coldsnap runs"),
        ((), "Usage: coldsnap"),
    ],
)
def test_what_cannot_be_parsed_exits_1_on_stderr(cli, arguments, said) -> None:
    done = cli(*arguments, code=1)
    assert done.out == ""
    assert said in done.err


def test_json_gives_the_error_object_on_stdout(cli) -> None:
    done = cli("runs", "show", "01ABC", "--json", code=1)
    assert done.json["error"]["code"] == "run.unknown"
    assert ColdSnapError.from_json(done.json["error"]).remedy
    assert done.err.startswith("error[run.unknown]: ")


def test_options_may_stand_before_the_command(cli) -> None:
    assert cli("--json", "runs", "list").json == []
    assert cli("--json", "config", "show", "-i", "x.yaml").json["settings"]["inventory"] == {
        "value": "x.yaml",
        "origin": "flag",
        "place": "--inventory",
    }


def test_colour_is_for_terminals_and_for_those_who_ask(cli) -> None:
    bad = ("runs", "show", "01ABC")
    assert "\x1b" not in cli(*bad, code=1).err
    assert "\x1b[1;31m" in cli(*bad, "--color", "always", code=1).err
    assert "\x1b[1;31m" in cli(*bad, env={"FORCE_COLOR": "1"}, code=1).err
    assert "\x1b" not in cli(*bad, env={"FORCE_COLOR": "1", "NO_COLOR": "1"}, code=1).err
    assert "\x1b" not in cli(*bad, "--color=never", env={"FORCE_COLOR": "1"}, code=1).err


def test_stdout_that_is_closed_early_is_no_defect(cli) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        cli.argv("version"),
        env=cli.env,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert "Traceback" not in done.stderr
    assert "error" not in done.stderr.lower()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_in_their_exit_codes(cli, number, code) -> None:
    # A named pipe without a writer keeps the command waiting for as long as the test needs.
    fifo = cli.project / "coldsnap.yaml"
    waiting = cli.project / "request.json"
    os.mkfifo(waiting)
    fifo.write_text("")
    program = "import sys, time; from coldsnap.cli import main, outcome\n"
    program += "from coldsnap.cli.signals import raise_on_terminate; raise_on_terminate()\n"
    program += "def call(): print('ready', flush=True); time.sleep(60)\n"
    program += "sys.exit(outcome.exit_code_of(call, []))"
    process = subprocess.Popen(
        [cli.argv()[0], "-c", program], env=cli.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == code
    assert b"Traceback" not in err


WAITS_FOR_A_LOCK = """
import os, signal, threading
from coldsnap.cli.signals import handed_over
asked, numbers = threading.Event(), []
def request(number):
    numbers.append(number)
    asked.set()
number = signal.{name}
with handed_over(request):
    # Another thread takes the signal: nothing wakes the main one, which waits.
    threading.Thread(target=asked.wait, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    os.kill(os.getpid(), number)
    is_heard = asked.wait(30)
print(is_heard, numbers == [number])
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_is_heard_while_the_main_thread_waits(cli, name) -> None:
    """Seen under load: a Ctrl-C during a step's wait for its next try did nothing."""
    done = subprocess.run(
        [cli.argv()[0], "-c", WAITS_FOR_A_LOCK.format(name=name)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("True True\n", "")


def raising(error: BaseException):
    def call() -> None:
        raise error

    return call


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ColdSnapError("a.b", "x"), 1),
        (ColdSnapError("a.b", "x", changed=True), 3),
        (ColdSnapError("plan.stale", "x"), 4),
        (ColdSnapError("run.cancelled", "x"), 130),
        (KeyboardInterrupt(), 130),
        (Terminated(), 143),
        (SystemExit(3), 3),
        (typer.Abort(), 130),
    ],
)
def test_exit_codes(error, code, capsys) -> None:
    assert outcome.exit_code_of(raising(error), []) == code
    if isinstance(error, ColdSnapError):
        assert exit_code_of_error(error) == code
        assert capsys.readouterr().err.startswith(f"error[{error.code}]: x")


def test_a_defect_is_one_line_and_a_log_to_attach(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    code = outcome.exit_code_of(raising(ValueError("boom")), ["plan", "--var", "key=secret"])
    said = capsys.readouterr().err
    assert code == 1
    assert said.startswith("error[internal.unexpected]: ValueError: boom\n")
    assert "Traceback" not in said
    (log,) = (tmp_path / "coldsnap").rglob("error-*.log")
    assert str(log) in said
    assert log.stat().st_mode & 0o777 == 0o600
    text = log.read_text()
    assert "Traceback" in text
    assert "secret" not in text


def test_a_defect_is_reported_without_a_home_too(monkeypatch, capsys) -> None:
    def refuse(*_a: Any, **_k: Any) -> None:
        raise PermissionError

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    assert outcome.exit_code_of(raising(ValueError("boom")), []) == 1
    assert "report it with the command" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["pydantic", "rich", "jinja2", "ruamel", "networkx", "pyinfra"])
def test_version_imports_nothing_slow(cli, module) -> None:
    program = (
        "import sys; from coldsnap.cli.main import execute; execute(['version']);"
        f"sys.exit({module!r} in sys.modules)"
    )
    assert subprocess.run([cli.argv()[0], "-c", program], env=cli.env, check=False).returncode == 0


def test_completion_knows_the_commands(cli) -> None:
    done = cli(
        env={"_COLDSNAP_COMPLETE": "complete_bash", "COMP_WORDS": "coldsnap ru", "COMP_CWORD": "1"}
    )
    assert done.out.split() == ["runs", "runtime"]
    script = cli("completion", "bash").out
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


def test_json_is_all_of_stdout(cli) -> None:
    json.loads(cli("config", "show", "--json").out)
