from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coldsnap.artifact.decode import decode
from coldsnap.artifact.descriptor import Descriptor, complete, read_descriptor
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.oci.media import canonical_blob

ZERO = "sha256:" + "0" * 64


@pytest.fixture
def valid(valid_descriptor: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy(valid_descriptor)


def test_a_descriptor_reads_back_as_itself(valid: dict[str, Any]) -> None:
    data, _ = canonical_blob(valid)
    assert read_descriptor(data).to_json() == valid
    assert valid["format"] == 9
    assert valid["kind"] == "coldsnap-snapshot-artifact"


def test_objects_name_every_file_once(valid: dict[str, Any]) -> None:
    objects = decode(Descriptor, valid, what="descriptor").objects()
    paths = [item.path for item in objects]
    assert len(set(paths)) == len(paths)
    assert any(path.endswith(".pack") for path in paths)


def put(value: Any, path: str, new: Any) -> None:
    *parents, last = path.split("/")
    for key in parents:
        value = value[int(key) if isinstance(value, list) else key]
    value[int(last) if isinstance(value, list) else last] = new


PACKS = "weights/model_payloads/objects"


@pytest.mark.parametrize(
    ("path", "new", "message"),
    [
        ("format", 8, "/format: must be one of 9, is 8"),
        ("state", "draft", "/state: must be one of 'committed'"),
        ("acceptance/accepted", False, "/acceptance/accepted: must be one of True"),
        ("snapshot_driver/abi", 2, "/snapshot_driver/abi"),
        ("snapshot_driver/capture_boundary", "other", "is not the contract of driver criu"),
        ("requires/features", [{"id": "x"}], "lacks criu-process-tree"),
        ("requires/features", [{"id": "b"}, {"id": "a"}], "must be sorted"),
        ("capsule/objects/0/path", "../x", "/capsule/objects/0/path"),
        ("capsule/objects/0/sha256", ZERO, "is not that of unit u0's objects"),
        ("capsule/objects", [], "/capsule/objects: must have at least one"),
        ("capsule/images", [], "/capsule/images"),
        ("capsule/images/0/unit", "u1", "must be one for each unit"),
        ("compatibility/units/0/unit", "u1", "must be those of the launch"),
        ("launch/units/0/index", 1, "/launch/units/0/index: must be 0"),
        (f"{PACKS}/0/path", "model-payloads/x.pack", "must be model-payloads/sha256/"),
        (f"{PACKS}/0/owner", "worker/w1", "must be one pack for each worker"),
        (f"{PACKS}/0/role", "other", "must be model-weight-payload"),
        ("weights/recovery/model_id", "other", "model and revision must be those of the launch"),
        ("weights/native", {"snapshot_driver": "criu"}, ""),
    ],
)
def test_invariants(valid: dict[str, Any], path: str, new: Any, message: str) -> None:
    put(valid, path, new)
    if not message:
        decode(Descriptor, valid, what="descriptor")
        return
    with pytest.raises(ColdSnapError) as caught:
        decode(Descriptor, valid, what="descriptor")
    assert caught.value.code == "artifact.invalid"
    assert message in caught.value.message


def test_a_pack_without_its_index_is_refused(valid: dict[str, Any]) -> None:
    objects = valid["capsule"]["objects"]
    objects[:] = [item for item in objects if not item["path"].endswith(".index.json")]
    del valid["capsule"]["images"]
    with pytest.raises(ColdSnapError, match="its index is not among"):
        complete(valid)


def test_what_a_checkpoint_reports_becomes_a_descriptor(
    tmp_path: Path, capture: Callable[..., Any], draft: Callable[..., Any]
) -> None:
    """Owners inside the unit, the engine's own names for its payload, sizes not known."""
    reported = capture(tmp_path)
    for item in reported["objects"]:
        item["owner"] = "12"
    for item in reported["payloads"]:
        item["owner"] = ""
        is_index = item["role"].endswith("index")
        item["role"] = "payload-index" if is_index else "payload"
        item["path"] = f"payload/payload.{'index.json' if is_index else 'pack'}"
    mapped = {"path": "/lib/x.so", "bytes": 1, "mtime_ns": 5, "sha256": ZERO, "device": 3}
    log = {**mapped, "path": "/var/log/x", "sha256": ""}
    made = complete(
        draft(reported)
        | {
            "extensions": {
                "sizes": {"process": 5, "kv_discarded": None},
                "mapped_files": [mapped, log],
            }
        }
    )
    assert {item.owner for item in made.capsule.objects} == {"unit/u0"}
    assert made.weights.model_payloads is not None
    (pack,) = made.weights.model_payloads.objects
    assert pack.owner == "worker/w0"
    assert pack.path == f"model-payloads/sha256/{pack.sha256[7:]}.pack"
    assert dict(made.extensions.sizes) == {"process": 5}
    assert [file.sha256 for file in made.extensions.mapped_files] == [ZERO, None]


def worker(name: str, **changes: Any) -> dict[str, Any]:
    return {"id": name, "unit": "u0", "service": "serve"} | changes


WORLD = {"id": "world", "kind": "tp:world", "service": "serve", "members": ["w0"]}


TWO_RANKS = {**WORLD, "members": ["w0", "w1"]}
SERVICE = {"id": "serve", "role": "serve", "workers": ["w0"]}
WRONG_ADAPTER = {"schema": "a:b", "digest": ZERO, "payload": {}}


@pytest.mark.parametrize(
    ("execution", "message"),
    [
        ({"groups": [], "services": []}, "stand together"),
        ({"workers": [worker("w0"), worker("w0")]}, "two have one id"),
        ({"groups": [{**WORLD, "kind": "tp"}]}, "is in 0 groups of a kind ending in :world"),
        ({"groups": [WORLD, {**WORLD, "id": "other"}]}, "is in 2 groups"),
        ({"groups": [{**WORLD, "members": ["w0", "w9"]}]}, "'w9' is no worker of service"),
        ({"services": [{**SERVICE, "workers": ["w0", "w1"]}]}, "must be the workers"),
        ({"workers": [worker("w0", service="other")]}, "must be the workers"),
        ({"workers": [worker("w0"), worker("w1")], "groups": [TWO_RANKS]}, "is taken by another"),
        ({"adapter": WRONG_ADAPTER}, "is not that of the payload"),
    ],
)
def test_topology_rules(valid: dict[str, Any], execution: Any, message: str) -> None:
    valid["launch"]["execution"] |= execution
    if execution.get("groups") == [TWO_RANKS]:
        valid["launch"]["execution"]["services"] = [{**SERVICE, "workers": ["w0", "w1"]}]
    with pytest.raises(ColdSnapError) as caught:
        decode(Descriptor, valid, what="descriptor")
    assert message in caught.value.message


def test_identity_leaves_placement_out(valid: dict[str, Any]) -> None:
    unit = valid["launch"]["units"][0]
    unit |= {"host": "gpu-1", "devices": ["0"], "mounts": [{"source": "/a", "target": "/m"}]}
    one = decode(Descriptor, valid, what="descriptor").launch
    unit |= {"host": "gpu-2", "devices": ["3"], "mounts": [{"source": "/b", "target": "/m"}]}
    two = decode(Descriptor, valid, what="descriptor").launch
    assert one != two
    assert one.identity() == two.identity()
    unit["command"] = ["other"]
    assert decode(Descriptor, valid, what="descriptor").launch.identity() != one.identity()
