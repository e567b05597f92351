"""Weights by policy: native, recovery, auto; what is bad is named, never used, and remembered."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from runtime_target import Host, call, descriptor
from test_activation import QUESTIONS, READY
from waiting import wait_for

pytestmark = pytest.mark.criu

HYDRATE = call(
    "POST", "/hydrate", {"payload": "{payload}", "index": "{index}", "provider": "{provider}"}
)
THEN = {"hydrate": {"calls": [HYDRATE], "ready": READY}, "accept": QUESTIONS}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"seed-1")
    return folder


def published(host: Host, model: Path) -> str:
    request = host.launch_request()
    mount = {"source": str(model), "target": str(model), "read_only": True}
    request["launch"]["mounts"].append(mount)
    request["launch"]["env"]["MODEL"] = str(model)
    request["model"] = {"id": "tiny", "path": str(model)}
    host.unit("launch", **request).ok()
    answers = host.accept().result["answers"]
    host.quiesce().ok()
    captured = host.checkpoint().result
    draft = descriptor(captured)
    draft["extensions"] |= {
        "answers": answers,
        "notes": {"model-files": captured["model_files"]},
    }
    return str(
        host.call(
            "store.publish",
            request={
                "store": str(host.state / "store"),
                "capture_dir": captured["capture_dir"],
                "descriptor": draft,
                "tags": ["tiny"],
                "run": host.run,
                "unit": "u0",
            },
        ).result["manifest"]
    )


def payload(host: Host) -> Path:
    """The pack's blob; the model's folder, though mounted in the unit's /tmp, is in no other."""
    blobs = (host.state / "store" / "blobs" / "sha256").iterdir()
    (found,) = [path for path in blobs if path.read_bytes()[:6] == b"seed-1"]
    return found


def damage(blob: Path, *, quietly: bool = False) -> None:
    before = blob.stat()
    data = bytearray(blob.read_bytes())
    data[0] ^= 1
    blob.chmod(0o600)
    blob.write_bytes(data)
    blob.chmod(0o400)
    if quietly:  # as a disk does it: no time stamp tells
        os.utime(blob, ns=(before.st_atime_ns, before.st_mtime_ns))


def restored(host: Host, manifest: str, **changes: Any) -> dict[str, Any]:
    done = host.restore(manifest, then=THEN, **changes)
    assert done.result["accepted"]["compared"] is True
    return {"events": done.messages("log"), **done.result["provider"]}


def serving(host: Host) -> list[int]:
    return [number for number, state in host.states().items() if state == "serving"]


def test_native_is_first(host: Host, model: Path) -> None:
    found = restored(host, published(host, model))
    assert (found["policy"], found["used"], found["faults"]) == ("auto", "native", [])


@pytest.mark.parametrize("spoil", [damage, Path.unlink])
def test_a_bad_payload_costs_the_payload_not_the_restore(host: Host, model: Path, spoil) -> None:
    manifest = published(host, model)
    blob = payload(host)
    spoil(blob)
    found = restored(host, manifest)
    assert found["used"] == "recovery"
    (fault,) = found["faults"]
    assert fault["provider"] == "native"
    assert fault["code"] == ("store.blob-differs" if blob.exists() else "store.blob-missing")
    assert blob.name in fault["reason"], "it is named"
    assert any("provider native is out" in message for message in found["events"])


@pytest.mark.parametrize("spoil", [damage, Path.unlink])
def test_where_native_is_demanded_it_is_refused_before_anything(
    host: Host, model: Path, spoil
) -> None:
    manifest = published(host, model)
    spoil(payload(host))
    error = host.restore(manifest, then=THEN, provider="native").error
    assert error["code"] in {"store.blob-differs", "store.blob-missing"}
    assert serving(host) == [1]
    assert len(host.states()) == 1, "no generation was begun"


def test_damage_found_while_hydrating_falls_back_and_is_remembered(host: Host, model: Path) -> None:
    """The record of the whole file still holds; a chunk's digest tells."""
    manifest = published(host, model)
    blob = payload(host)
    damage(blob, quietly=True)
    found = restored(host, manifest)
    assert found["used"] == "recovery"
    assert found["faults"][0]["code"] == "pack.chunk-differs"
    assert any("is quarantined" in message for message in found["events"])
    again = restored(host, manifest)
    assert again["faults"][0]["code"] == "store.blob-quarantined"
    error = host.restore(manifest, then=THEN, provider="native").error
    assert error["code"] == "store.blob-quarantined"


def test_damage_found_while_hydrating_ends_the_generation_under_native(
    host: Host, model: Path
) -> None:
    manifest = published(host, model)
    damage(payload(host), quietly=True)
    error = host.restore(manifest, then=THEN, provider="native").error
    assert error["code"] == "pack.chunk-differs"
    assert "provider=recovery" in error["remedy"]
    assert serving(host) == [1]
    assert restored(host, manifest)["faults"][0]["code"] == "store.blob-quarantined"


def test_recovery_on_demand_never_opens_the_payload(host: Host, model: Path) -> None:
    manifest = published(host, model)
    payload(host).unlink()
    found = restored(host, manifest, provider="recovery")
    assert (found["used"], found["faults"]) == ("recovery", [])


def change(model: Path) -> None:
    os.utime(model / "model.safetensors", ns=(1, 1))


def grow(model: Path) -> None:
    (model / "more.safetensors").write_bytes(b"x")


def remove(model: Path) -> None:
    (model / "model.safetensors").unlink()
    (model / "other").touch()


@pytest.mark.parametrize("spoil", [change, grow, remove])
def test_a_changed_model_is_refused_by_name(host: Host, model: Path, spoil) -> None:
    manifest = published(host, model)
    spoil(model)
    error = host.restore(manifest, then=THEN, provider="recovery").error
    assert error["code"] == "recovery.model-changed"
    assert str(model) in error["message"]
    assert serving(host) == [1]
    found = restored(host, manifest)
    assert found["used"] == "native", "which needs no model"
    assert found["faults"][0]["code"] == "recovery.model-changed"
    assert found["allowed"] == "native", "and what is damaged then is not replaced by it"


def test_neither_works(host: Host, model: Path) -> None:
    manifest = published(host, model)
    payload(host).unlink()
    change(model)
    error = host.restore(manifest, then=THEN).error
    assert error["code"] == "provider.none-works"
    assert any("blob-missing" in line for line in error["details"])
    assert any("model-changed" in line for line in error["details"])
    assert serving(host) == [1]
    assert len(host.states()) == 1


def test_a_model_elsewhere_is_looked_at_there(host: Host, model: Path, tmp_path: Path) -> None:
    manifest = published(host, model)
    mounts = [{"source": str(tmp_path / "nowhere"), "target": str(model), "read_only": True}]
    error = host.restore(manifest, provider="recovery", mounts=mounts).error
    assert error["code"] == "recovery.model-missing"


def test_a_later_hydration_can_be_told(host: Host, model: Path) -> None:
    manifest = published(host, model)
    host.restore(manifest).ok()
    told = {"calls": [HYDRATE], "ready": READY, "generation": 2}
    done = host.unit("hydrate", provider="recovery", **told).result
    assert done["provider"]["used"] == "recovery"
    host.restore(manifest, provider="recovery").ok()
    error = host.unit("hydrate", provider="native", **{**told, "generation": 3}).error
    assert error["code"] == "provider.no-payload"


def test_an_unknown_policy(host: Host) -> None:
    request = {"store": "/nothing", "artifact": "sha256:" + "0" * 64, "provider": "best"}
    assert host.unit("restore", **request).error["code"] == "request.invalid"


EXPORT = call("POST", "/export", {"dir": "{dir}/materialized"})


def materialized(host: Host, job: str = "", **changes: Any) -> dict[str, Any]:
    request = {"store": str(host.state / "store"), "calls": [EXPORT], **changes}
    return host.unit("materialize", job, **request).result


@pytest.mark.parametrize("spoil", [damage, Path.unlink])
def test_a_payload_that_was_lost_is_built_again(host: Host, model: Path, spoil) -> None:
    """The same bytes: the artifact itself is whole again."""
    manifest = published(host, model)
    spoil(payload(host))
    assert restored(host, manifest)["used"] == "recovery"
    before = host.seen("/state", generation=2)
    done = materialized(host, generation=2)
    assert (done["manifest"], done["already"]) == (manifest, False)
    assert done["bytes_added"] > 0
    assert host.seen("/state", generation=2)["pid"] == before["pid"]
    assert serving(host) == [1, 2], "it served all the while"
    assert restored(host, manifest, provider="native")["used"] == "native"
    again = materialized(host, generation=2)
    assert again["already"], "and needs nothing more"
    assert not list((host.state / "units" / "u0").glob("*/control/materialized"))


def test_an_artifact_without_a_payload_gets_one(host: Host, model: Path) -> None:
    """A manifest of its own takes over the names; the capsule is the same."""
    manifest = published(host, model)
    store = str(host.state / "store")
    ask = {"store": store, "ref": manifest}
    old = host.call("store.resolve", request=ask).result["descriptor"]
    payload(host).unlink()
    restored(host, manifest)
    change(model)
    (model / "model.safetensors").write_bytes(b"seed-1")
    host.unit("call", generation=2, calls=[call("POST", "/seed", {"seed": "seed-2"})]).ok()
    done = materialized(host, generation=2)
    assert done["manifest"] != manifest
    new = host.call("store.resolve", request={"store": store, "ref": "tiny"}).result
    assert new["manifest"] == done["manifest"], "the name moved"
    kept = [item for item in old["capsule"]["objects"] if "payload" not in item["role"]]
    found = new["descriptor"]["capsule"]["objects"]
    assert [item for item in found if "payload" not in item["role"]] == kept
    assert new["descriptor"]["extensions"]["answers"] == old["extensions"]["answers"]
    assert host.generations()[2]["artifact"] == done["manifest"]


def ended(host: Host, job: str) -> str:
    """State of a job that runs no more; empty while it does."""
    jobs = host.call("job", "list").result["jobs"]
    return next(
        (row["state"] for row in jobs if row["job"] == job and row["state"] != "running"), ""
    )


def test_a_job_of_its_own_goes_on(host: Host, model: Path) -> None:
    manifest = published(host, model)
    payload(host).unlink()
    restored(host, manifest)
    started = materialized(host, "j7", generation=2, detach=True)
    assert started["job"] == "j7.materialize"
    assert wait_for(lambda: ended(host, started["job"])) == "done"
    assert payload(host).exists()
    assert restored(host, manifest, provider="native")["used"] == "native"


def test_a_cold_one_has_no_capsule_to_add_to(host: Host, model: Path) -> None:
    published(host, model)
    request = {"store": str(host.state / "store"), "calls": [EXPORT], "generation": 1}
    assert host.unit("materialize", **request).error["code"] == "materialize.no-artifact"
