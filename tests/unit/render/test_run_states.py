"""A run that failed and was put back never reads as a success."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

from coldsnap.engine.history import State
from coldsnap.render.report.html import report_html
from coldsnap.render.report.model import report_of
from coldsnap.render.report.text import closing_text
from coldsnap.render.run_states import run_word
from coldsnap.render.runs import run_json, runs_text

_spec = importlib.util.spec_from_file_location("histories", Path(__file__).parent / "histories.py")
histories = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(histories)


def test_every_place_says_failed_and_json_keeps_the_state() -> None:
    history = histories.failed()
    report = report_of(history)
    assert report.state == "recovered"
    headline = closing_text(report).splitlines()[0]
    assert headline.startswith(" failed, put back  qwen3-8b-restore in ")
    assert ">failed, put back</span>" in report_html(report)
    run = SimpleNamespace(
        id="01R", state="recovered", history=history, active=False, torn_bytes=0, fault=None
    )
    assert "failed, put back" in runs_text([run])
    assert "recovered" not in runs_text([run])
    assert run_json(run)["state"] == "recovered"


@pytest.mark.parametrize("state", ["succeeded", "failed", "partial", "cancelled", "rolled-back"])
def test_other_states_are_words_already(state: str) -> None:
    assert run_word(state) == state


def test_a_run_that_only_met_has_nothing_to_do() -> None:
    found = histories.restored(("gpu-1",))
    for instance in found.instances.values():
        instance.state, instance.outputs = State.UNCHANGED, {}
    met = histories.step("barrier", "gpu-1", 0, 2.0)
    found.instances[met.key] = met
    assert closing_text(report_of(found)).startswith(" nothing to do  qwen3-8b-restore")
    changed = histories.step("stage", "gpu-1", 0, 1.0)
    found.instances[changed.key] = changed
    assert closing_text(report_of(found)).startswith(" succeeded  qwen3-8b-restore")
