"""Operation requests, format 4: compiled, carried out, answered with receipts."""

from __future__ import annotations

import json

import pytest

from coldsnap.artifact.receipt import read_receipt
from coldsnap.artifact.request import resolve_request
from coldsnap.cli.requests import plan_text
from coldsnap.plan.loading import load_text
from coldsnap.plan.registry import Registry
from coldsnap.plan.variables import Given

UNIT = {"unit": "u0", "generation": 3, "state": "serving", "exposed": True, "launch_sha256": ""}


def request(operation: str = "sleep", **changes) -> dict:
    value = {
        "operation": operation,
        "id": "op-1",
        "snapshot_driver": {"id": "criu"},
        "launch": {
            "engine": "reference",
            "model": {"id": "/models/m", "source": "path"},
            "units": [
                {
                    "id": "u0",
                    "index": 0,
                    "host": "gpu-1",
                    "command": ["serve", "--quick"],
                    "environment": {"A": "b"},
                    "mounts": [{"source": "/data", "target": "/data"}],
                    "extensions": {"ports": [{"inner": 8000, "port": 8001}]},
                }
            ],
        },
    }
    if operation == "capture":
        value["output"] = "mine"
    else:
        value["artifact"] = "mine"
    if operation in ("sleep", "wake", "status"):
        names = ("cluster_id", "intent_id", "recipe", "runtime", "model")
        value["workload"] = dict.fromkeys(names, "x")
    return value | changes


@pytest.fixture
def fleet(cli):
    status = {"fact": "coldsnap_core.facts:RuntimeVerb", "args": {"verb": "unit.status"}}
    units = [UNIT, UNIT | {"unit": "other"}]
    host = {
        "connector": "@fake",
        "answers": [{**status, "value": {"units": units}}],
        "results": {"coldsnap_core.operations:runtime_verb": {"generation": 3, "timing": None}},
    }
    path = cli.project / "fleet.yaml"
    path.write_text(json.dumps({"coldsnap": "inventory/v1", "hosts": {"gpu-1": host}}))
    return str(path)


def write(cli, value: dict) -> str:
    path = cli.project / "request.json"
    path.write_text(json.dumps(value))
    return str(path)


@pytest.mark.parametrize("operation", ["capture", "restore", "sleep", "wake"])
def test_a_request_becomes_a_valid_plan(operation) -> None:
    registry = Registry.installed()
    made = resolve_request(request(operation, validation={"prompt": "Hello"}))
    template = None
    if operation in ("capture", "restore"):
        template = registry.template(f"reference.{operation}")
    plan = load_text(plan_text(made, template), registry, Given(environment={}))
    (unit,) = plan.topology.units
    assert unit.hosts == "gpu-1"
    assert unit.command == ("serve", "--quick")
    assert unit.ports[0].port == 8001
    assert plan.driver == "criu"
    verbs = {step.type.partition(".")[2] for step in plan.steps}
    expected = {"capture": "checkpoint", "restore": "restore"}.get(operation, operation)
    assert expected in verbs


def test_topology_is_passed_on() -> None:
    value = request("sleep")
    value["launch"]["execution"] = {
        "workers": [{"id": "w0", "unit": "u0", "service": "decode"}],
        "groups": [
            {"id": "g", "kind": "tp:world", "service": "decode", "members": ["w0"]},
        ],
        "services": [{"id": "decode", "role": "decode", "workers": ["w0"]}],
    }
    text = plan_text(resolve_request(value), None)
    plan = load_text(text, Registry.installed(), Given(environment={}))
    assert plan.topology.services[0].role == "decode"


def test_sleep_is_carried_out_and_leaves_its_receipt(cli, fleet) -> None:
    made = request("sleep")
    path = write(cli, made)
    done = cli("sleep", "--request-json", path, "-i", fleet, "--receipt-json", "r.json", "--json")
    assert done.json["state"] == "succeeded"
    receipt = read_receipt(cli.project / "r.json")
    assert receipt.operation == "sleep"
    assert receipt.operation_id == "op-1"
    assert receipt.state == "succeeded"
    assert receipt.request_sha256 == resolve_request(made).sha256


def test_request_on_stdin_and_receipt_on_stdout(cli, fleet) -> None:
    done = cli(
        "wake", "--request-json", "-", "--receipt-json", "-", "-i", fleet,
        stdin=json.dumps(request("wake")),
    )  # fmt: skip
    assert done.json["kind"] == "coldsnap-operation-receipt"
    assert "succeeded" in done.err


def test_a_receipt_of_another_request_is_refused_before_anything_starts(cli, fleet) -> None:
    path = write(cli, request("sleep"))
    cli("sleep", "--request-json", path, "-i", fleet, "--receipt-json", "r.json")
    path = write(cli, request("sleep", id="op-2"))
    done = cli(
        "sleep", "--request-json", path, "-i", fleet, "--receipt-json", "r.json", code=1
    )  # fmt: skip
    assert "error[receipt.bound-elsewhere]" in done.err
    assert len(cli("runs", "list", "--json").json) == 1


def test_status_shows_the_units_of_the_request(cli, fleet) -> None:
    path = write(cli, request("status"))
    (answer,) = cli("status", "--request-json", path, "-i", fleet, "--json").json
    assert [unit["unit"] for unit in answer["units"]] == ["u0"]


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"operation": "wake"}, "request.invalid", "/operation"),
        ({"surprise": 1}, "request.invalid", "surprise"),
        (
            {"policy": {"weights": {"mode": "native"}}},
            "request.unsupported",
            "/policy/weights/mode",
        ),
        ({"policy": {"process": {"kv_discard": False}}}, "request.unsupported", "kv_discard"),
        ({"launch": 3}, "request.invalid", "/launch"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(cli, fleet, changes, code, said) -> None:
    path = write(cli, request("sleep") | changes)
    done = cli("sleep", "--request-json", path, "-i", fleet, code=1)
    assert f"error[{code}]" in done.err
    assert said in done.err
    assert not (cli.project / ".coldsnap").exists()


def test_not_json_and_not_there(cli) -> None:
    done = cli("sleep", "--request-json", "-", stdin="{", code=1)
    assert "error[request.invalid]" in done.err
    assert "error[file.missing]" in cli("sleep", "--request-json", "x.json", code=1).err


def test_capabilities_say_what_is_done(cli) -> None:
    found = cli("capabilities", "--json").json
    assert [o["operation"] for o in found["operations"]] == [
        "capture", "restore", "sleep", "wake", "status",
    ]  # fmt: skip
    assert found["protocols"]["request_format"] == 4
    assert "reference" in [engine["engine"] for engine in found["engine_adapters"]]
    assert json.loads(cli("capabilities").out) == found
