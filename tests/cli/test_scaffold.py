"""step new and plan new give what works as it is."""

from __future__ import annotations

import ast
import importlib
import json
import shutil
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shelf(cli) -> Path:
    """A project with a pack of its own that an entry point announces."""
    steps = cli.project / "steps"
    steps.mkdir()
    info = steps / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[coldsnap.steps]\nmine = coldsnap_mine:PACK\n")
    return steps


def test_a_step_of_a_new_pack_passes_the_tests_of_steps(cli, shelf, monkeypatch) -> None:
    made = cli("step", "new", "mine/thaw_it", "--json").json
    assert made["type"] == "mine.thaw_it"
    assert made["listed"]
    monkeypatch.syspath_prepend(str(shelf))
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "steps"))
    pack = importlib.import_module("coldsnap_mine").PACK
    checks = importlib.import_module("test_cases")
    step = pack.steps["mine.thaw_it"]
    monkeypatch.setitem(checks.STEPS, "mine.thaw_it", step)
    checks.test_contract("mine.thaw_it")
    cases = sorted((shelf / "coldsnap_mine" / "thaw_it" / "cases").glob("*.yaml"))
    assert len(cases) == 3
    for path in cases:
        checks.test_case(step, path)
    for name in [name for name in sys.modules if name.startswith("coldsnap_mine")]:
        del sys.modules[name]


def test_a_new_step_runs_on_this_machine(cli, shelf, tmp_path) -> None:
    cli("step", "new", "mine/thaw")
    cli.env["PYTHONPATH"] = str(shelf)
    assert "mine.thaw" in cli("step", "list", "mine").out
    assert "keep a marker file" in cli("step", "show", "mine.thaw").out
    marker = tmp_path / "marker"
    plan = cli.project / "plan.yaml"
    plan.write_text(
        "coldsnap: plan/v1\nname: mark\nsteps:\n"
        f"  - {{id: thaw, type: mine.thaw, with: {{path: {marker}}}}}\n"
    )
    cli("plan", "diff", "plan.yaml", "--detailed-exitcode", code=2)
    done = cli("plan", "apply", "plan.yaml", "--yes", "--json").json
    assert done["changed"] == 1
    assert marker.exists()
    cli("plan", "diff", "plan.yaml", "--detailed-exitcode", code=0)


def test_a_step_of_a_pack_that_is_there_is_listed_in_order(cli) -> None:
    steps = cli.project / "steps"
    shutil.copytree(ROOT / "steps" / "coldsnap_core", steps / "coldsnap_core")
    before = (steps / "coldsnap_core" / "__init__.py").read_text()
    out = cli("step", "new", "core/thaw").out
    after = (steps / "coldsnap_core" / "__init__.py").read_text()
    added = set(after.splitlines()) - set(before.splitlines())
    assert added == {
        "from coldsnap_core.thaw.step import Thaw",
        '    "core.thaw": Thaw,',
    }
    ast.parse(after)
    assert "next: edit" in out


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("thaw", "scaffold.bad-name"),
        ("core/../thaw", "scaffold.bad-name"),
        ("Core/thaw", "scaffold.bad-name"),
        ("mine/thaw", "scaffold.exists"),
    ],
)
def test_names_that_cannot_be(cli, shelf, name, code) -> None:
    cli("step", "new", "mine/thaw")
    assert f"error[{code}]" in cli("step", "new", name, code=1).err


def test_there_must_be_a_shelf(cli) -> None:
    assert "error[scaffold.no-shelf]" in cli("step", "new", "core/thaw", code=1).err


def templates() -> list[str]:
    found = []
    for pack in sorted((ROOT / "steps").glob("coldsnap_*")):
        name = pack.name.removeprefix("coldsnap_")
        found += [f"{name}.{path.stem}" for path in sorted((pack / "templates").glob("*.yaml"))]
    return found


@pytest.mark.parametrize("template", templates())
def test_a_new_plan_of_every_template_is_valid(cli, template) -> None:
    cli("plan", "new", template, "--out", "plans/new.yaml")
    cli("plan", "validate", "plans/new.yaml", "--var", "model=/models/m")
    document = YAML(typ="safe").load((cli.project / "plans" / "new.yaml").read_text())
    assert document["steps"][0]["uses"] == template


def test_a_new_plan_names_the_schema_of_the_project(cli) -> None:
    (cli.project / "coldsnap.yaml").write_text("")
    (cli.project / "schemas").mkdir()
    (cli.project / "schemas" / "plan.schema.json").write_text("{}")
    cli("plan", "new", "reference.capture", "--out", "plans/a/new.yaml", "--name", "mine")
    text = (cli.project / "plans" / "a" / "new.yaml").read_text()
    assert text.startswith(
        "# yaml-language-server: $schema=../../schemas/plan.schema.json\ncoldsnap: plan/v1\n"
        "name: mine\n"
    )
    again = cli("plan", "new", "reference.capture", "--out", "plans/a/new.yaml", code=1)
    assert "error[scaffold.exists]" in again.err
    assert json.loads(cli("plan", "new", "reference.capture", "--json").out)["file"] is None


def test_an_unknown_template_gets_the_near_name(cli) -> None:
    done = cli("plan", "new", "reference.captur", code=1)
    assert "error[plan.unknown-template]" in done.err
    assert 'did you mean "reference.capture"' in done.err
