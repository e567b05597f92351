"""Standard streams that are closed, full, or whose reader has gone."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

FULL = Path("/dev/full")
BUFFERED = pytest.mark.parametrize("unbuffered", ["", "1"])
ANSWERS = pytest.mark.parametrize(
    "arguments", [("version",), ("--help",), ("step", "list"), ("runs", "list", "--json")]
)


def shell(cli: Any, script: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with its streams as `script` redirects them."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {script}', "sh", *cli.argv(*arguments)],
        cwd=cli.project,
        env=cli.env | env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@BUFFERED
@ANSWERS
def test_a_full_stdout_is_told_in_one_line(cli, arguments, unbuffered) -> None:
    done = shell(cli, f">{FULL}", *arguments, PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 1
    assert done.stderr.startswith("error[cli.no-output]: the answer could not be written")
    assert "Traceback" not in done.stderr


@BUFFERED
@ANSWERS
def test_a_reader_that_has_gone_is_not_worth_a_word(cli, arguments, unbuffered) -> None:
    argv = cli.argv(*arguments)
    run = subprocess.Popen(
        argv,
        cwd=cli.project,
        env=cli.env | {"PYTHONUNBUFFERED": unbuffered},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert run.stdout is not None
    run.stdout.close()
    _, err = run.communicate(timeout=120)
    assert (run.returncode, err) == (1, b"")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_nowhere(cli, closed) -> None:
    done = shell(cli, closed, "step", "list")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    refused = shell(cli, closed, "runs", "show", "01ABC")
    assert refused.returncode == 1
    assert refused.stderr.startswith("error[run.unknown]") or "2>&-" in closed


def test_files_never_take_the_numbers_of_closed_streams(cli) -> None:
    """A plan that is written while stderr is closed holds the plan and nothing else."""
    done = shell(cli, "<&- >&- 2>&-", "plan", "new", "reference.capture", "--out", "made.yaml")
    assert done.returncode == 0
    text = (cli.project / "made.yaml").read_text()
    assert "coldsnap: plan/v1" in text
    assert "next:" not in text


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_a_terminal_cannot_show_costs_no_answer(cli, encoding) -> None:
    (cli.project / "plan.yaml").write_text(
        "coldsnap: plan/v1\nname: look\nsteps: [{id: look, type: core.stage}]\n"
    )
    odd = cli.project / "ü\udcff─"
    odd.mkdir()
    (odd / "x.bin").write_bytes(b"x")
    drawn = shell(cli, "", "plan", "graph", "plan.yaml", PYTHONIOENCODING=encoding)
    assert drawn.returncode == 0, drawn.stderr
    assert "look" in drawn.stdout
    done = subprocess.run(
        cli.argv("payload", "pack", str(odd / "x.bin"), "--out", str(odd / "packs")),
        cwd=cli.project,
        env=cli.env | {"PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b".pack" in done.stdout
