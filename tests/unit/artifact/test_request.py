from __future__ import annotations

import json
from typing import Any

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.request import read_request, resolve_request


def request(**changes: Any) -> dict[str, Any]:
    value: dict[str, Any] = {
        "operation": "capture",
        "id": "op-1",
        "snapshot_driver": {"id": "c580"},
        "output": "qwen",
        "launch": {
            "engine": "vllm",
            "model": {"id": "Qwen/Qwen3-8B", "revision": "abc", "source": "hf"},
            "units": [{"id": "u0", "index": 0, "command": ["vllm", "serve"]}],
        },
    }
    return value | changes


def policy(**parts: Any) -> dict[str, Any]:
    return request(policy=parts)


def test_defaults_are_filled_in() -> None:
    made = resolve_request(request())
    assert made.format == 4
    assert made.policy.process.graph_policy == "recreate-from-plan"
    assert made.policy.process.kv_discard
    assert made.policy.cache.paths == ("/var/cache/coldsnap/runtime",)
    assert made.validation.health_path == "/health"


@pytest.mark.parametrize(
    ("driver", "graphs"),
    [("criu", "disabled"), ("n580", "recreate-from-plan"), ("n610", "preserve-nccl-exec")],
)
def test_the_graph_policy_follows_the_driver(driver: str, graphs: str) -> None:
    made = resolve_request(request(snapshot_driver={"id": driver}))
    assert made.policy.process.graph_policy == graphs


def test_two_absent_fields_have_a_meaning_of_their_own() -> None:
    assert resolve_request(policy(cache={"seed": False})).policy.cache.paths == ()
    off = resolve_request(policy(process={"async_graphs": False}))
    assert off.policy.process.graph_policy == ""


def test_the_digest_is_of_the_resolved_request() -> None:
    short = read_request(json.dumps(request()))
    spelled = read_request(json.dumps(short.to_json(), indent=2, sort_keys=True))
    assert short.sha256 == spelled.sha256
    assert resolve_request(request(output="other")).sha256 != short.sha256


def test_the_operation_must_be_the_commands() -> None:
    with pytest.raises(ColdSnapError, match="is capture, the command is restore"):
        resolve_request(request(), operation="restore")


UNIT = {"id": "u0", "index": 0}
PACK = {"worker": "u0", "path": "/x.pack", "bytes": 3, "sha256": "sha256:" + "0" * 64}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "must be an object"),
        (request(output=""), "/output: is needed for capture"),
        (request(operation="restore"), "/artifact: is needed for restore"),
        (request(operation="publish", artifact="x"), "/policy/capsule/repository"),
        (request(operation="publish-native", artifact="x"), "/policy/weights/native/repository"),
        (request(operation="status", artifact="x"), "/workload/cluster_id: is needed"),
        (request(workload={"cluster_id": "c"}), "/workload/intent_id: is needed"),
        (request(snapshot_driver={"id": "auto"}), "/snapshot_driver/id: must be one of"),
        (request(lifecycle={"activation_state": "warm"}), "warm is for restore with driver n610"),
        (policy(process={"async_graphs": False, "graph_policy": "preserve-exec"}), "needs async"),
        (
            policy(process={"async_graphs": False, "shape_calibration": "enabled"}),
            "enabled needs async_graphs",
        ),
        (policy(weights={"recovery": {"enabled": False}}), "must be true for mode auto"),
        (policy(weights={"native": {"repository": "a/b"}}), "/revision: is needed"),
        (policy(weights={"native": {"staged": [{**PACK, "worker": "x"}]}}), "must name all"),
        (policy(weights={"native": {"files_by_worker": {"x": "a"}}}), "must name all workers"),
        (policy(capsule={"repository": "Upper/case"}), "a repository in lower case"),
        (policy(capsule={"repository": "a/b@sha256:0"}), "a repository in lower case"),
        (policy(cache={"paths": ["/etc/x"]}), "is a folder of the system"),
        (policy(cache={"paths": ["/a", "/a/b"]}), "lies in another one"),
        (policy(cache={"paths": ["/a", "/a"]}), "given twice"),
        (policy(cache={"paths": ["a"]}), "an absolute path"),
        (policy(typo={}), "/policy: unknown field 'typo'"),
        (request(policy=[]), "/policy: must be an object"),
    ],
)
def test_invariants(value: Any, message: str) -> None:
    with pytest.raises(ColdSnapError) as caught:
        resolve_request(value)
    assert caught.value.code == "request.invalid"
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("unit", "message"),
    [
        ({"command": ["vllm", "--enforce-eager"]}, "--enforce-eager excludes async_graphs"),
        ({"mounts": [{"source": "/a", "target": "/var/cache/coldsnap"}]}, "overlaps cache"),
        ({"mounts": [{"source": "a", "target": "/m"}]}, "must be a clean absolute path"),
        (
            {"mounts": [{"source": "/a", "target": "/m"}, {"source": "/b", "target": "/m"}]},
            "two mounts have one target",
        ),
        ({"image": "x:latest", "image_digest": "sha256:1"}, "must be its digest or end with"),
        ({"environment": {"A-B": "1"}}, "an environment variable name"),
        ({"command": ["a\0b"]}, "must not hold control characters"),
        ({"index": 3}, "must be 0, its position"),
    ],
)
def test_units(unit: dict[str, Any], message: str) -> None:
    value = request()
    value["launch"]["units"] = [UNIT | unit]
    with pytest.raises(ColdSnapError) as caught:
        resolve_request(value)
    assert message in caught.value.message


def test_one_device_of_one_host_has_one_unit() -> None:
    value = request()
    value["launch"]["units"] = [
        {"id": "u0", "index": 0, "host": "h", "devices": ["0"]},
        {"id": "u1", "index": 1, "host": "h", "devices": ["0"]},
    ]
    with pytest.raises(ColdSnapError, match="is given twice"):
        resolve_request(value)
