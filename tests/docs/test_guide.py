"""docs/add-a-step-type.md, done as it says, in a scratch copy of the source."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from console import environment, run_block
from markdown import ROOT, Block, blocks

GUIDE = ROOT / "docs" / "add-a-step-type.md"
COPIED = ("coldsnap", "steps", "runtime", "inventories", "schemas")
FILES = ("pyproject.toml", "tests/conftest.py")
FORGET = """import sys
sys.meta_path[:] = [f for f in sys.meta_path if not type(f).__module__.startswith("_editable_")]
"""
"""As sitecustomize: an editable install looks for modules before PYTHONPATH does."""
LIMIT = 15 * 60.0
"""Seconds for a person; the commands alone must be far below."""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    quiet = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in COPIED:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=quiet)
    shutil.copytree(ROOT / "tests" / "steps", tmp_path / "tests" / "steps", ignore=quiet)
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path / name)
    if (ROOT / "build" / "native").is_dir():
        shutil.copytree(ROOT / "build" / "native", tmp_path / "build" / "native")
    return tmp_path


@pytest.mark.criu
@pytest.mark.timeout(600)
def test_guide(copy: Path) -> None:
    path = os.pathsep.join(str(copy / part) for part in (".site", "", "steps", "runtime"))
    (copy / ".site").mkdir()
    (copy / ".site" / "sitecustomize.py").write_text(FORGET)
    env = environment(copy, PYTHONPATH=path)
    marker = Path("/tmp/coldsnap-drain")
    marker.unlink(missing_ok=True)
    started = time.monotonic()
    try:
        for block in blocks(GUIDE):
            follow(block, copy, env)
    finally:
        marker.unlink(missing_ok=True)
    assert time.monotonic() - started < LIMIT / 3


def follow(block: Block, folder: Path, env: dict[str, str]) -> None:
    """Run a console block; write a block that names a file."""
    if block.language == "console":
        assert "guide" in block.info, f"{block.place}: console blocks of the guide say guide"
        run_block(block, folder, env)
    elif len(block.info) > 1:
        target = folder / block.info[1]
        assert target.parent.is_dir(), f"{block.place}: {target.parent} is not there yet"
        target.write_text(block.text)
