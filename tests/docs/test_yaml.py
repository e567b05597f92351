"""Plans, templates and inventories of the documentation, of plans/ and inventories/ are valid."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from markdown import ROOT, Block, all_blocks
from ruamel.yaml import YAML

from coldsnap.fleet import open_fleet
from coldsnap.plan.document import parse_document
from coldsnap.plan.loading import load_text
from coldsnap.plan.registry import Registry
from coldsnap.plan.templates import read_template
from coldsnap.plan.variables import Given

SAMPLES = {"path": "/srv/models/demo", "string": "demo", "int": 8001, "float": 1.0, "bool": True}
PLANS = sorted((ROOT / "plans").rglob("*.yaml"))
TYPES_OF_THE_GUIDE = {"core.drain"}
"""Step types that the guide makes; test_guide loads plans with them."""


def kind(text: str) -> str:
    value = YAML(typ="safe", pure=True).load(text)
    return str(value.get("coldsnap", "")) if isinstance(value, dict) else ""


def documents(wanted: str) -> list[Block]:
    return [block for block in all_blocks("yaml") if kind(block.text).startswith(wanted)]


def given(text: str) -> Given:
    """Variables that a plan must be given."""
    declared: dict[str, Any] = YAML(typ="safe", pure=True).load(text).get("vars") or {}
    lacking = {n: d["type"] for n, d in declared.items() if "default" not in d}
    return Given(flags=[f"{name}={SAMPLES[k]}" for name, k in lacking.items()], environment={})


@pytest.mark.parametrize("block", all_blocks("yaml"), ids=lambda b: b.place)
def test_is_yaml(block: Block) -> None:
    parse_document(block.text.encode(), block.place)


@pytest.mark.parametrize("block", documents("plan/"), ids=lambda b: b.place)
def test_plan(block: Block) -> None:
    if any(name in block.text for name in TYPES_OF_THE_GUIDE):
        pytest.skip("its step type is made by the guide; test_guide loads it")
    load_text(block.text, Registry.installed(), given(block.text), path=block.place)


@pytest.mark.parametrize("block", documents("inventory/"), ids=lambda b: b.place)
def test_inventory(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(block.text)
    with open_fleet(str(path)) as fleet:
        assert fleet.select("all")


@pytest.mark.parametrize("block", documents("template/"), ids=lambda b: b.place)
def test_template(block: Block, tmp_path: Path) -> None:
    name = str(YAML(typ="safe", pure=True).load(block.text)["name"])
    path = tmp_path / f"{name.rpartition('.')[2]}.yaml"
    path.write_text(block.text)
    assert read_template(path, name, Registry.installed().validator("template")).steps


@pytest.mark.parametrize(
    "path", sorted((ROOT / "inventories").glob("*.yaml")), ids=lambda p: p.name
)
def test_example_inventory(path: Path) -> None:
    with open_fleet(str(path)) as fleet:
        assert fleet.select("all")


@pytest.mark.parametrize("path", PLANS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_example_plan(path: Path) -> None:
    text = path.read_text()
    plan = load_text(text, Registry.installed(), given(text), path=str(path))
    assert plan.description, "an example says what it is for"
    assert text.startswith("# yaml-language-server: $schema=")
    schema = path.parent / text.split("=", 1)[1].split("\n", 1)[0]
    assert schema.resolve() == ROOT / "schemas" / "plan.schema.json"


def needs_gpu(path: Path) -> bool:
    return YAML(typ="safe", pure=True).load(path).get("driver", "auto") not in {"auto", "criu"}


@pytest.mark.parametrize("path", PLANS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_dry_run(path: Path, tmp_path: Path) -> None:
    variables = [part for flag in given(path.read_text()).flags for part in ("--var", flag)]
    inventory = ROOT / "inventories" / "fake.yaml"
    command = [
        sys.executable,
        "-m",
        "coldsnap.cli",
        "plan",
        "diff",
        str(path),
        "-i",
        str(inventory),
    ]
    done = subprocess.run(
        [*command, *variables, "--project", str(tmp_path), "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    codes = {
        item["error"]["code"] for item in json.loads(done.stdout)["instances"] if item["error"]
    }
    # The fake hosts have no GPU: a plan that needs one is refused by name, at once.
    wanted = {"probe.not-able"} if needs_gpu(path) else set()
    assert codes <= wanted, done.stderr
    assert done.returncode == bool(codes), done.stderr
