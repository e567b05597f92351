"""Every step type of every installed pack: its folder is complete and its cases hold.

A case is data: `spec` and `seen` give either an `expect`ed change or an error code; `commands`
are what apply sends to the host (a subset of each request).
"""

from __future__ import annotations

import inspect
import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from stage_set import RecordingHost, context

from coldsnap.sdk import Change, ColdSnapError, Pack, Step

yaml = YAML(typ="safe")


def all_steps() -> dict[str, type[Step[Any]]]:
    packs: list[Pack] = [entry.load() for entry in entry_points(group="coldsnap.steps")]
    return {name: step for pack in packs for name, step in pack.steps.items()}


STEPS = all_steps()


def folder(step: type[Step[Any]]) -> Path:
    return Path(inspect.getfile(step)).parent


def cases() -> list[Any]:
    found = []
    for name, step in sorted(STEPS.items()):
        paths = sorted((folder(step) / "cases").glob("*.yaml"))
        found += [pytest.param(step, path, id=f"{name}:{path.stem}") for path in paths]
    return found


def subset(part: Any, whole: Any) -> bool:
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            k in whole and subset(v, whole[k]) for k, v in part.items()
        )
    return bool(part == whole)


@pytest.mark.parametrize(("step", "path"), cases())
def test_case(step: type[Step[Any]], path: Path) -> None:
    case = yaml.load(path.read_text())
    unknown = set(case) - {
        "spec",
        "seen",
        "expect",
        "commands",
        "run",
        "driver",
        "facts",
        "results",
    }
    assert not unknown, f"unknown keys in {path}: {unknown}"
    host = RecordingHost(case.get("facts", {}), case.get("results", {}))
    ctx = context(step, host, case)
    spec = step.spec.model_validate(case.get("spec", {}))
    expect = case["expect"]
    if "error" in expect:
        with pytest.raises(ColdSnapError) as raised:
            step().apply(spec, _run(step, spec, case, ctx), ctx)
        assert raised.value.code == expect["error"]
        assert raised.value.message
        return
    change = _run(step, spec, case, ctx)
    assert change.action.value == expect["action"], change
    if "summary" in expect:
        assert re.search(expect["summary"], change.summary), change.summary
    assert change.pauses_serving == expect.get("pauses_serving", False)
    for row in expect.get("rows", []):
        assert any(row in f"{r.noun} {r.detail}" for r in change.rows), change.rows
    if "commands" in case:
        step().apply(spec, change, ctx)
        assert len(host.performed) == len(case["commands"]), host.performed
        for wanted, sent in zip(case["commands"], host.performed, strict=True):
            assert subset(wanted, sent), (wanted, sent)


def _run(step: type[Step[Any]], spec: Any, case: dict[str, Any], ctx: Any) -> Change:
    """diff on the case's `seen`, or on what observe makes of its `facts`."""
    seen = case["seen"] if "seen" in case else step().observe(spec, ctx)
    return step().diff(spec, seen, ctx)


@pytest.mark.parametrize("name", sorted(STEPS))
def test_contract(name: str) -> None:
    """A step folder is whole: typed spec, README with an example, three kinds of cases."""
    step = STEPS[name]
    where = folder(step)
    assert step.type == name
    assert step.summary
    assert step.spec.__doc__, "the spec's docstring is the help text"
    undocumented = [
        field for field, info in step.spec.model_fields.items() if info.description is None
    ]
    assert not undocumented, f"fields without a description: {undocumented}"
    readme = (where / "README.md").read_text()
    example = re.search(r"```yaml\n(.*?)```", readme, re.DOTALL)
    assert example, "README.md has no yaml example"
    parsed = yaml.load(example[1])
    item = parsed[0] if isinstance(parsed, list) else parsed
    assert item["type"] == name
    step.spec.model_validate(
        {k: v for k, v in item.get("with", {}).items() if not (isinstance(v, str) and "{{" in v)}
        | {
            k: _sample(step, k)
            for k, v in item.get("with", {}).items()
            if isinstance(v, str) and "{{" in v
        }
    )
    kinds = {_kind(path) for path in (where / "cases").glob("*.yaml")}
    missing = {"nothing to do", "change", "failure"} - kinds
    allowed = {"change"} if step.read_only else set()
    if step.read_only and "change" in missing:
        missing -= allowed
    assert not missing, f"cases missing: {missing}"


def _sample(step: type[Step[Any]], field: str) -> Any:
    """Stands for the value of an expression in a README example."""
    annotation = str(step.spec.model_fields[field].annotation)
    if "int" in annotation:
        return 1
    if "float" in annotation:
        return 1.0
    if "list" in annotation or "tuple" in annotation:
        return []
    return {} if "dict" in annotation else "x"


def _kind(path: Path) -> str:
    expect = yaml.load(path.read_text())["expect"]
    if "error" in expect:
        return "failure"
    return "nothing to do" if expect["action"] == "none" else "change"
