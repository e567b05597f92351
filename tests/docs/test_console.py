"""Every command in a console block is run, and prints what the page says, loosely."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from console import commands, environment, missing, run_block
from markdown import ROOT, Block, all_blocks

KNOWN = {"criu", "guide", "ssh", "gpu"}
BLOCKS = all_blocks("console")


def blocks_with(*needs: str) -> list[Block]:
    """Blocks that need exactly this."""
    return [b for b in BLOCKS if set(b.info[1:]) & KNOWN == set(needs)]


def test_blocks_say_what_they_need() -> None:
    for block in BLOCKS:
        words = {word for word in block.info[1:] if not word.startswith("exit=")}
        assert words <= KNOWN, f"{block.place}: {words - KNOWN}"
        assert commands(block)


def test_commands_outside_of_console_blocks_are_no_transcripts() -> None:
    """A ``$ coldsnap`` line in another kind of block would never be run."""
    for language in ("", "sh", "bash", "text"):
        for block in all_blocks(language):
            assert "$ coldsnap" not in block.text, f"{block.place}: make it a console block"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("plans", "inventories"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("block", blocks_with(), ids=lambda b: b.place)
def test_without_machines(block: Block, place: Path) -> None:
    run_block(block, place, environment(place))


@pytest.fixture
def machine(place: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """This machine with a state folder and a port of its own; nothing of it is left."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    inventory = place / "inventories" / "local.yaml"
    inventory.write_text(
        "coldsnap: inventory/v1\nhosts:\n"
        f'  here: {{connector: "@local", vars: {{state_dir: {place}/state}}}}\n'
    )
    env = environment(place, COLDSNAP_VAR_PORT=str(port))
    yield place, env
    evict = ["coldsnap", "plan", "apply", "plans/evict.yaml", "--var", "unit=engine", "--yes"]
    subprocess.run(evict, cwd=place, env=env, capture_output=True, check=False, timeout=120)


@pytest.mark.criu
@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", blocks_with("criu"), ids=lambda b: b.place)
def test_with_criu(block: Block, machine: tuple[Path, dict[str, str]]) -> None:
    small = Block(
        block.document, block.line, block.info, block.text.replace("--size 200MB", "--size 24MB")
    )
    run_block(small, *machine)


@pytest.mark.parametrize("block", blocks_with("ssh") + blocks_with("gpu"), ids=lambda b: b.place)
def test_listed_only(block: Block) -> None:
    pytest.skip(f"{block.place} needs {block.info[1]}: run it by hand")


def test_the_comparison_notices() -> None:
    printed = " captured  demo   payload 44 MiB   sha256:aaaa..\n nothing else\n"
    assert not list(missing([" captured  demo   payload 384 MiB   sha256:bbbb.."], printed))
    assert not list(missing(["...", " captured ...", ""], printed))
    assert list(missing([" restored  demo   payload 44 MiB"], printed))
