"""The engine's pack: calls that the real engine understands, templates that expand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from reference_server import ROOT, Served

from coldsnap.plan.loading import load_plan
from coldsnap.plan.registry import Registry
from coldsnap.sdk import ColdSnapError, HttpCall, Model, Port, Unit
from coldsnap_reference import PACK
from coldsnap_reference.engine import CONTROL_PORT, ReferenceEngine
from coldsnap_reference_engine.__main__ import parser

ENGINE = ReferenceEngine()
MODEL = Model(id="small", path="/models/small")
UNIT = Unit(ports=(Port(inner=8000),))


def perform(served: Served, call: HttpCall, places: dict[str, str]) -> Any:
    """As the unit controller does."""
    assert call.port == str(CONTROL_PORT)
    body = {
        key: places.get(value.strip("{}"), value) if isinstance(value, str) else value
        for key, value in call.body.items()
    }
    status, value = served.ask(call.path, body, control=True, timeout=call.timeout)
    assert status == 200, value
    assert call.expect.items() <= value.items()
    return value


def test_default_command_is_one_that_the_engine_takes() -> None:
    launch = ENGINE.launch(UNIT, MODEL, {"python": "/usr/bin/python3"})
    assert launch.argv[:3] == ("/usr/bin/python3", "-m", "coldsnap_reference_engine")
    arguments = parser().parse_args(launch.argv[3:])
    assert arguments.model == Path("/models/small")
    assert (arguments.port, arguments.control_port) == (8000, CONTROL_PORT)
    assert arguments.served_model_name == "small"
    assert launch.inside == ("coldsnap_reference_engine",)


def test_own_command_gets_the_ports() -> None:
    unit = UNIT.model_copy(update={"command": ("python3", "-m", "mine")})
    launch = ENGINE.launch(unit, MODEL, {})
    assert launch.argv[:3] == ("python3", "-m", "mine")
    assert launch.argv[-2:] == ("--control-port", str(CONTROL_PORT))


@pytest.mark.parametrize(
    ("unit", "model", "code"),
    [
        (UNIT, Model(id="x"), "reference.no-model"),
        (Unit(command=("x", "--port=1")), MODEL, "reference.option-owned"),
        (Unit(ports=(Port(inner=CONTROL_PORT),)), MODEL, "reference.port-taken"),
    ],
)
def test_what_cannot_work_is_refused(unit: Unit, model: Model, code: str) -> None:
    with pytest.raises(ColdSnapError) as caught:
        ENGINE.launch(unit, model, {})
    assert caught.value.code == code
    assert caught.value.remedy


def test_calls_take_a_real_engine_through_its_life(served: Served, tmp_path: Path) -> None:
    places = {
        "dir": str(tmp_path),
        "payload": str(tmp_path / "payload.pack"),
        "index": str(tmp_path / "payload.index.json"),
        "provider": "auto",
    }
    before = served.complete()
    for undo in (ENGINE.resume(), ENGINE.hydrate()):
        for call in (*ENGINE.quiesce(), *undo):
            perform(served, call, places)
        assert served.complete() == before
    for call in (*ENGINE.sleep(), *ENGINE.wake()):
        perform(served, call, places)
    assert served.complete() == before
    (export,) = ENGINE.export()
    folder = tmp_path / "materialized"
    status, told = served.ask(export.path, {"dir": str(folder)}, control=True)
    assert status == 200
    assert (folder / "payload.pack").stat().st_size == told["bytes"]
    assert served.complete() == before, "it served all the while"


def test_acceptance_is_a_request_that_the_engine_takes(served: Served) -> None:
    acceptance = ENGINE.acceptance(MODEL)
    body = {**acceptance.body, "prompt": "a", "max_tokens": 4, "temperature": 0, "logprobs": 1}
    status, value = served.ask(acceptance.path, body)
    assert status == 200
    assert len(value["choices"][0]["logprobs"]["token_logprobs"]) == 4


def test_templates_are_there() -> None:
    assert PACK.root is not None
    names = {path.stem for path in (PACK.root / "templates").glob("*.yaml")}
    assert names == {"capture", "restore", "cold", "evict"}


@pytest.mark.parametrize(
    ("plan", "kinds"),
    [
        ("capture", "stage probe launch accept quiesce checkpoint publish collect"),
        ("restore", "stage probe barrier restore hydrate accept expose evict materialize"),
    ],
)
def test_example_plans_are_short_and_expand(plan: str, kinds: str) -> None:
    path = ROOT / "plans" / "reference" / f"{plan}.yaml"
    assert len(path.read_text().splitlines()) <= 17
    loaded = load_plan(path, Registry.installed(), variables=["model=/models/small"])
    assert [step.type for step in loaded.steps] == [f"core.{kind}" for kind in kinds.split()]
    assert loaded.engine == "reference"
