"""schemas/ is what the specs say, and the generator tells when it is not."""

from __future__ import annotations

import json
import subprocess
import sys

from jsonschema import Draft202012Validator

from coldsnap.cli import schemas


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "coldsnap.cli.schemas", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_generated_schemas_are_schemas() -> None:
    generated = schemas.generated()
    for name in ("plan", "template", "inventory", "artifact", "request", "receipt"):
        assert f"{name}.schema.json" in generated
    assert "steps/core.restore.schema.json" in generated
    for text in generated.values():
        Draft202012Validator.check_schema(json.loads(text))


def test_generation_is_the_same_every_time() -> None:
    assert schemas.generated() == schemas.generated()


def test_check_tells_what_differs_and_write_repairs_it(tmp_path) -> None:
    folder = ("--folder", str(tmp_path))
    done = run("--check", *folder)
    assert done.returncode == 1
    assert "missing: plan.schema.json" in done.stderr
    assert run(*folder).returncode == 0
    assert run("--check", *folder).returncode == 0
    (tmp_path / "plan.schema.json").write_text("{}")
    (tmp_path / "old.schema.json").write_text("{}")
    done = run("--check", *folder)
    assert done.returncode == 1
    assert "differs: plan.schema.json" in done.stderr
    assert "not generated: old.schema.json" in done.stderr
    assert run(*folder).returncode == 0
    assert not (tmp_path / "old.schema.json").exists()
    assert run("--check", *folder).returncode == 0
