"""What ``coldsnap bench`` refuses before it kills anything; tests/e2e measures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.cli.benching import _require_restored, command_line

PLANS = Path(__file__).parents[2] / "plans" / "reference"
BOTH = (str(PLANS / "capture.yaml"), str(PLANS / "restore.yaml"), "--var", "model=/models/m")


@pytest.fixture
def fake(cli):
    folder = cli.project / "inventories"
    folder.mkdir()
    hosts = {"h": {"connector": "@fake", "answers": []}}
    (folder / "local.yaml").write_text(json.dumps({"coldsnap": "inventory/v1", "hosts": hosts}))
    return cli


def test_nothing_is_killed_without_a_yes(fake) -> None:
    done = fake("bench", "cold-vs-restore", *BOTH, code=1)
    assert "error[cli.not-confirmed]" in done.err
    assert "--yes" in done.err


def test_variables_go_to_the_plans_that_declare_them(fake) -> None:
    """`tokens` is one of the capture plan only; a plan that needs `model` says so."""
    done = fake("bench", "cold-vs-restore", *BOTH, "--var", "tokens=3", code=1)
    assert "error[cli.not-confirmed]" in done.err
    done = fake("bench", "cold-vs-restore", *BOTH[:2], code=1)
    assert "error[plan." in done.err
    assert "model" in done.err


def test_a_plan_that_cannot_be_started_cold_needs_a_cold_plan(fake) -> None:
    own = fake.project / "own.yaml"
    own.write_text(
        """
coldsnap: plan/v1
name: own
engine: reference
model: {id: m, path: /models/m}
units: [{id: u0}]
steps:
  - {id: stage, type: core.stage}
"""
    )
    done = fake("bench", "cold-vs-restore", str(own), BOTH[1], *BOTH[2:], "--yes", code=1)
    assert "error[bench.no-cold-plan]" in done.err
    assert "--cold-plan" in done.err


def test_numbers_are_bounded(fake) -> None:
    done = fake("bench", "cold-vs-restore", *BOTH, "--cold", "0", code=1)
    assert "error[cli.usage]" in done.err


def test_a_cold_start_is_not_measured_as_a_restore() -> None:
    fault = {"provider": "native", "code": "store.blob-missing", "reason": "pages-1.img"}
    outputs = {"provider": {"used": "cold", "faults": [fault]}}
    with pytest.raises(ColdSnapError) as raised:
        _require_restored(outputs, "u0")
    assert raised.value.code == "bench.not-restored"
    assert raised.value.details == ("store.blob-missing: pages-1.img",)
    _require_restored({"provider": {"used": "native"}}, "u0")
    _require_restored({"generation": 3}, "u0")


def test_the_command_line_of_a_document_names_no_places() -> None:
    words = [
        "bench",
        "/home/me/clone/plans/a/b.yaml",
        "--var",
        "model=/srv/m",
        "--out",
        "/x",
        "a b",
    ]
    assert command_line(words) == "coldsnap bench plans/a/b.yaml --var model=... --out ... 'a b'"


def test_an_unknown_way_to_restore_is_answered_with_the_known_ones(cli) -> None:
    said = cli("bench", "process-restore", "--kinds", "ext,mmmap", code=1).err
    assert "unknown kind mmmap" in said
    assert "plain, thp, ext, ext-small, mmap" in said
