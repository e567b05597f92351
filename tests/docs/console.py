"""Console blocks: the commands in them, what they are said to print, and whether they do.

The words after ``console`` say what a block needs: nothing (fake hosts at most), ``criu``,
``guide`` (a scratch copy of the source, see test_guide), ``ssh`` or ``gpu`` (listed, not run),
and ``exit=N`` when its last command does not end with 0.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from markdown import Block

_NOISE = [
    (re.compile(r"sha256:[0-9a-f]+(\.\.)?"), " "),
    (re.compile(r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b"), " "),
    (re.compile(r"\d+ (ms|s|min|h|d) ago"), " "),
]
_WORD = re.compile(r"[a-z_][a-z_.-]{2,}", re.IGNORECASE)
_UNITS = {"kib", "mib", "gib", "mb", "min"}


@dataclass
class Command:
    text: str
    line: int
    expected: list[str] = field(default_factory=list)


def commands(block: Block) -> list[Command]:
    found: list[Command] = []
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if line.startswith("$ "):
            found.append(Command(line[2:], number))
        else:
            assert found, f"{block.place}: the block does not begin with a command"
            found[-1].expected.append(line)
    return found


def exit_code(block: Block) -> int:
    codes = [word.removeprefix("exit=") for word in block.info if word.startswith("exit=")]
    return int(codes[0]) if codes else 0


def run_block(block: Block, folder: Path, env: Mapping[str, str]) -> None:
    """Run its commands one after the other and compare what they print, loosely."""
    found = commands(block)
    for command in found:
        wanted = exit_code(block) if command is found[-1] else 0
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command.text],
            cwd=folder,
            env=dict(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=280,
            check=False,
        )
        place = f"{block.document}:{command.line}: {command.text}"
        assert done.returncode == wanted, f"{place}\nexit {done.returncode}\n{done.stdout}"
        for line in missing(command.expected, done.stdout):
            message = f"{place}\nis said to print\n  {line}\nand printed\n{done.stdout}"
            raise AssertionError(message)


def missing(expected: list[str], printed: str) -> Iterator[str]:
    """Expected lines of which no printed line has all the words."""
    lines = [words(line) for line in printed.splitlines()]
    for line in expected:
        wanted = words(line)
        if wanted and not any(wanted <= line_words for line_words in lines):
            yield line


def words(line: str) -> set[str]:
    """What stays the same from run to run: words, without digests, ids, times and sizes."""
    for pattern, instead in _NOISE:
        line = pattern.sub(instead, line)
    return {w.lower().strip(".") for w in _WORD.findall(line)} - _UNITS


def environment(folder: Path, **more: str) -> dict[str, str]:
    """A user's shell: `coldsnap` and `python` in the PATH, no colours, this folder's project."""
    binaries = folder / ".bin"
    binaries.mkdir(exist_ok=True)
    _script(binaries / "coldsnap", f'exec {sys.executable} -m coldsnap.cli "$@"')
    _script(binaries / "python", f'exec {sys.executable} "$@"')
    kept = {k: v for k, v in os.environ.items() if not k.startswith("COLDSNAP_VAR")}
    kept.pop("COLDSNAP_INVENTORY", None)
    return {
        **kept,
        "PATH": f"{binaries}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "NO_COLOR": "1",
        "COLUMNS": "160",
        "COLDSNAP_PROGRESS": "none",
        "COLDSNAP_PROJECT": str(folder),
        **more,
    }


def _script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
