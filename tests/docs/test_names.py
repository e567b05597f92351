"""What the documentation names exists, and what exists is named: commands, step types, code."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from markdown import ROOT, documents, prose

from coldsnap.cli.settings import SETTINGS
from coldsnap.cli.tree import Root, parser
from coldsnap.plan.registry import Registry

PAGES = [page for page in documents() if page.parent.name != "steps"]
TEXT = "\n".join(p.read_text() for p in documents() if "steps" not in p.relative_to(ROOT).parts)
_PATH = re.compile(r"`((?:coldsnap|steps|runtime|native|tests)/[\w/.-]+\.(?:py|c|h|yaml))`")
_CALL = re.compile(r"`(\w+)\(")


def all_commands() -> list[str]:
    """``plan diff``, ``status`` ..."""
    names = []
    context: Any = typer.Context(parser())
    for name in Root.table:
        command = parser().get_command(context, name)
        inner = getattr(command, "commands", None)
        names += [f"{name} {sub}" for sub in inner] if inner else [name]
    return names


def is_mentioned(command: str) -> bool:
    """``runs show``, or ``runs list|show|report``."""
    group, _, verb = command.partition(" ")
    if not verb:
        return re.search(rf"(coldsnap |`){re.escape(group)}\b", TEXT) is not None
    return any(
        verb in words.split("|") for words in re.findall(rf"\b{re.escape(group)} ([a-z|-]+)", TEXT)
    )


def test_every_command_is_mentioned() -> None:
    lacking = [name for name in all_commands() if not is_mentioned(name)]
    assert not lacking, lacking


def test_commands_that_are_mentioned_exist() -> None:
    known = {name.partition(" ")[0]: set[str]() for name in all_commands()}
    for name in all_commands():
        group, _, verb = name.partition(" ")
        known[group] |= {verb} if verb else set()
    for group, verb in re.findall(r"\bcoldsnap ([a-z]+)(?: ([a-z-]+))?", _code_of(TEXT)):
        assert group in known, f"coldsnap {group}"
        if verb and known[group]:
            assert verb in known[group], f"coldsnap {group} {verb}"


def test_every_step_type_and_template_is_mentioned() -> None:
    registry = Registry.installed()
    lacking = [name for name in registry.steps if name not in TEXT]
    assert not lacking, lacking


def test_every_setting_is_mentioned() -> None:
    lacking = [n for n, s in SETTINGS.items() if s.variable not in TEXT and f"--{n}" not in TEXT]
    assert lacking in ([], ["parallel"]), lacking


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_files_that_are_named_exist(page: Path) -> None:
    for name in _PATH.findall(prose(page)):
        assert (ROOT / name).exists(), name


def test_functions_that_architecture_names_exist() -> None:
    """A ``name()`` is defined in one of the files that its section names."""
    page = ROOT / "docs" / "architecture.md"
    for section in re.split(r"\n#+ ", prose(page)):
        paths = [name for name in _PATH.findall(section) if name.endswith(".py")]
        defined = set().union(*(_defined(ROOT / name) for name in paths))
        for name in _CALL.findall(section):
            assert name in defined, f"{name}() is in none of {paths}"


def _defined(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def _code_of(text: str) -> str:
    """Code spans and blocks; prose may say what it likes about coldsnap."""
    spans = re.findall(r"`([^`\n]+)`", text)
    lines = [line for line in text.splitlines() if re.match(r"^(\$ |coldsnap )", line)]
    return "\n".join([*spans, *lines])
