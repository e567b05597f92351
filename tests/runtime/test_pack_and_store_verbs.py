"""The verbs of the runtime pack itself and of the store on a target."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from runtime_target import DIGEST

pytestmark = pytest.mark.criu


def test_pack_verify_and_gc(host):
    verified = host.call("pack.verify", request={"expect": host.pack.name}).result
    assert verified["digest"] == f"sha256:{host.pack.name}"
    assert host.call("pack.verify", request={"expect": "0" * 64}).error["code"] == "pack.wrong"
    old = host.pack.parent / ("a" * 64)
    used = host.pack.parent / ("b" * 64)
    cut = host.state / "runtime" / "incoming" / "unpack.cut"
    for folder in (old, used, cut):
        folder.mkdir(parents=True)
    os.utime(cut, (0, 0))
    record = host.state / "runtime" / "verified" / f"{old.name}.json"
    record.write_text("{}")
    result = host.call("pack.gc", request={"keep": ["sha256:" + "b" * 64]}).result
    kept = sorted(["b" * 64, host.pack.name])
    assert result == {"removed": ["a" * 64], "kept": kept, "ended": []}
    assert sorted(p.name for p in host.pack.parent.iterdir()) == sorted(["b" * 64, host.pack.name])
    assert not cut.exists()
    assert not record.exists()
    (host.pack / "coldsnap_runtime" / "verbs.py").open("a").write("# changed\n")
    error = host.call("pack.verify").error
    assert error["code"] == "pack.differs"
    assert "coldsnap_runtime/verbs.py" in error["details"][0]


def test_byte_code_is_kept_outside_the_pack_and_verify_removes_what_is_inside(host):
    planted = host.pack / "coldsnap_runtime" / "__pycache__"
    planted.mkdir()
    host.call("pack.verify").ok()
    assert not planted.exists()
    host.call("verbs").ok()
    # The interpreter compiles the file that it is given before that can say anything.
    assert [path.name[:9] for path in host.pack.rglob("*.pyc")] in ([], ["__main__."])
    assert list((host.state / "pycache").rglob("*.pyc"))


def test_code_that_a_full_disk_cut_is_compiled_again(host):
    host.call("unit.status", request={}).ok()
    (damaged,) = (host.state / "pycache").glob("**/unit_status.*.pyc")
    damaged.write_bytes(damaged.read_bytes()[:200])
    assert host.call("unit.status", request={}).error["code"] == "runtime.code-damaged"
    assert host.call("unit.status", request={}).result == {"units": []}


def test_store_verbs_on_a_host_without_a_store(host):
    store = str(host.state / "nothing")
    request = {"store": store, "ref": "x"}
    assert host.call("store.resolve", request=request).result["manifest"] is None
    assert host.call("store.list", request={"store": store}).result == {"artifacts": []}
    collected = host.call("store.collect", request={"store": store, "keep": 1}).result
    assert collected["removed"] == []
    has = host.call("store.has", request={"store": store, "digests": [DIGEST]}).result
    assert has == {"present": [], "missing": [DIGEST]}
    assert host.call("store.inspect", request=request).error["code"] == "store.missing"
    both = {"store": store, "ref": "x", "request_sha256": DIGEST}
    assert host.call("store.resolve", request=both).error["code"] == "request.invalid"


def test_store_tag_verify_delete_collect(host):
    manifest, _ = host.captured()
    base = {"store": str(host.state / "store")}
    verified = host.call("store.verify", request={**base, "ref": "tiny"}).result
    assert verified["manifest"] == manifest
    assert verified["bytes_hashed"] == verified["bytes"]
    host.call("store.tag", request={**base, "tags": ["best"], "manifest": manifest}).ok()
    (row,) = host.call("store.list", request=base).result["artifacts"]
    assert sorted(row["tags"]) == ["best", "tiny"]
    host.call("store.tag", request={**base, "tags": ["best"], "manifest": None}).ok()
    host.call("store.delete", request={**base, "ref": "tiny"}).ok()
    request = {**base, "keep": 5, "dry_run": True}
    planned = host.call("store.collect", request=request).result
    collected = host.call("store.collect", request={**base, "keep": 5}).result
    assert collected["bytes"] == planned["bytes"] > 0
    assert not list((host.state / "captures").glob("*/*")), "published captures go too"
    assert host.call("store.resolve", request={**base, "ref": manifest}).result["manifest"] is None


def test_a_dump_that_nobody_wants_goes(host):
    host.launch().ok()
    host.quiesce().ok()
    folder = Path(host.checkpoint().result["capture_dir"])
    half = folder.with_name(folder.name + ".partial")
    half.mkdir()
    (half / "pages-1.img").touch()
    again = {"capture_id": folder.name}
    assert host.unit("discard", **again).result == {"removed": True}
    assert not folder.parent.exists()
    assert host.unit("discard", **again).result == {"removed": False}
    assert host.unit("discard", capture_id="../u0").error["code"] == "request.invalid"
    assert host.states() == {1: "serving"}
