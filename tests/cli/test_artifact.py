"""artifact list, inspect, verify, diff, delete on a store in this machine."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from coldsnap.artifact.decode import encode
from coldsnap.artifact.drivers import DRIVERS
from coldsnap.artifact.oci.layout import open_store
from coldsnap.artifact.oci.quarantine import condemn

_path = Path(__file__).parents[1] / "unit" / "artifact" / "conftest.py"
_spec = importlib.util.spec_from_file_location("artifact_conftest", _path)
captures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(captures)


@pytest.fixture
def store(cli, tmp_path) -> Path:
    root = tmp_path / "store"
    captures.publish_one(tmp_path / "first", root, seed="one", tags=["first"])
    captures.publish_one(tmp_path / "second", root, seed="two", tags=["second", "newest"])
    cli.env["COLDSNAP_STORE"] = f"oci-layout:{root}"
    return root


def test_list(cli, store) -> None:
    found = cli("artifact", "list", "--json").json
    assert [entry["tags"] for entry in found] == [["second", "newest"], ["first"]]
    assert all(entry["bytes"] > 0 for entry in found)
    lines = cli("artifact", "list").out.splitlines()
    assert lines[0].split() == ["ARTIFACT", "NAME", "TAGS", "SIZE", "UNITS", "CREATED"]
    assert "second, newest" in lines[1]


def test_a_store_that_is_not_there(cli, tmp_path) -> None:
    missing = f"oci-layout:{tmp_path / 'nope'}"
    assert "error[store." in cli("artifact", "list", "--store", missing, code=1).err
    bad = cli("artifact", "list", "--store", "s3://x", code=1).err
    assert "error[store.uri-invalid]" in bad
    assert "remedy: write oci-layout:" in bad
    far = cli("artifact", "list", "--store", "oci://registry/x", code=1).err
    assert "error[store.unsupported]" in far


def test_inspect(cli, store) -> None:
    text = cli("artifact", "inspect", "first").out
    assert text.startswith("sha256:")
    assert "criu-image" in text
    assert "└─" not in text
    tree = cli("artifact", "inspect", "first", "--size").out
    assert "└─" in tree
    data = cli("artifact", "inspect", "first", "--json").json
    assert data["descriptor"]["format"] == 9
    by_prefix = cli("artifact", "inspect", data["manifest"][7:19], "--json").json
    assert by_prefix == data


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("missing", "store.blob-missing"),
        ("damaged", "store.blob-differs"),
        ("quarantined", "store.blob-quarantined"),
    ],
)
def test_a_payload_that_cannot_be_used_is_told(cli, tmp_path, state, code) -> None:
    root = tmp_path / "store"
    captures.publish_one(tmp_path / "one", root, tags=["demo"])
    cli.env["COLDSNAP_STORE"] = f"oci-layout:{root}"
    assert "payload missing" not in cli("artifact", "list").out
    described = cli("artifact", "inspect", "demo", "--json").json["descriptor"]
    packs = described["weights"]["model_payloads"]["objects"]
    (pack,) = [item for item in packs if item["role"] == "model-weight-payload"]
    store = open_store(root)
    blob = store.blob(pack["sha256"])
    if state == "missing":
        blob.unlink()
    elif state == "damaged":
        blob.chmod(0o600)
        blob.write_bytes(b"cut")
    else:
        assert condemn(store, pack["sha256"], "pack.chunk-differs: chunk 0")
    assert f"payload {state}, " in cli("artifact", "list").out.splitlines()[1]
    (listed,) = cli("artifact", "list", "--json").json
    assert listed["payload_fault"] == state
    assert f"payload {state}: " in cli("artifact", "inspect", "demo").out
    assert cli("artifact", "inspect", "demo", "--json").json["payload_fault"] == state
    said = cli("artifact", "inspect", "demo", "--search-payload", code=1).err
    assert f"error[{code}]" in said
    assert "--var provider=recovery --var materialize=required" in said


@pytest.mark.parametrize(
    ("driver", "devices", "needed"),
    [
        ("criu", 0, "driver.criu, io-uring"),
        ("n580", 0, "criu-process-template, io-uring"),
        ("n580", 1, "driver.n580, io-uring"),
    ],
)
def test_what_a_host_needs_is_told_by_the_names_of_doctor(
    cli, tmp_path, driver, devices, needed
) -> None:
    """A template without devices wants nothing of CUDA."""
    contract = DRIVERS[driver]
    features = sorted([*contract.base_requirements, "io-uring"])
    unit = {"unit": "u0", "architecture": "x86_64"}
    if devices:
        device = {"slot": 0, "gpu_name": "NVIDIA H200", "compute_capability": "9.0"}
        unit |= {"devices": [device], "nvidia_driver_min": "580"}
    draft = captures.make_draft({"objects": [], "payloads": []})
    launched = draft["launch"]["units"][0] | {"devices": [str(slot) for slot in range(devices)]}
    worker = draft["launch"]["execution"]["workers"][0]
    workers = [worker | {"device_slots": list(range(devices))}]
    execution = draft["launch"]["execution"] | {"workers": workers}
    changes = {
        "snapshot_driver": encode(contract),
        "requires": {"features": [{"id": name} for name in features]},
        "launch": draft["launch"] | {"units": [launched], "execution": execution},
        "compatibility": {"units": [unit]},
    }
    captures.publish_one(tmp_path / "one", tmp_path / "store", tags=["demo"], changes=changes)
    cli.env["COLDSNAP_STORE"] = f"oci-layout:{tmp_path / 'store'}"
    lines = cli("artifact", "inspect", "demo").out.splitlines()
    assert lines[lines.index("needs on a host") + 1] == f"  features {needed}"


def test_what_is_not_in_the_store(cli, store) -> None:
    assert "error[store.no-such-artifact]" in cli("artifact", "inspect", "third", code=1).err


def test_verify_finds_a_flipped_byte_and_names_the_file(cli, store) -> None:
    good = cli("artifact", "verify", "first", "--json").json
    assert good["bytes_hashed"] == good["bytes"]
    assert cli("artifact", "verify", "first").out.startswith("intact: sha256:")
    data = cli("artifact", "inspect", "first", "--json").json
    item = max(data["descriptor"]["capsule"]["objects"], key=lambda item: item["bytes"])
    blob = store / "blobs" / "sha256" / item["sha256"].removeprefix("sha256:")
    blob.chmod(0o600)
    content = bytearray(blob.read_bytes())
    content[len(content) // 2] ^= 1
    blob.write_bytes(content)
    done = cli("artifact", "verify", "first", code=1)
    assert "error[store.blob-differs]" in done.err
    assert item["path"] in done.err


def test_diff(cli, store) -> None:
    assert cli("artifact", "diff", "first", "first").out.startswith("No differences.")
    found = cli("artifact", "diff", "first", "second", "--json").json
    assert found
    text = cli("artifact", "diff", "first", "second").out
    assert f"{len(found)} differences" in text


def test_delete_asks_and_frees(cli, store) -> None:
    refused = cli("artifact", "delete", "first", code=1)
    assert "error[cli.not-confirmed]" in refused.err
    before = sum(p.stat().st_size for p in store.rglob("*") if p.is_file())
    done = cli("artifact", "delete", "first", "--yes", "--collect", "--json").json
    assert done["bytes_freed"] > 0
    assert sum(p.stat().st_size for p in store.rglob("*") if p.is_file()) < before
    assert [e["tags"] for e in cli("artifact", "list", "--json").json] == [["second", "newest"]]
    cli("artifact", "verify", "second")


def test_where_the_memory_is_and_where_no_model_byte_is(cli, tmp_path) -> None:
    root = tmp_path / "store"
    areas = [
        {
            "pid": 7,
            "process": "core",
            "kind": "anonymous",
            "name": "",
            "start": 4096,
            "bytes": 6000,
        },
        {"pid": 7, "process": "core", "kind": "heap", "name": "", "start": 8192, "bytes": 2000},
        {"pid": 9, "process": "api", "kind": "file-private", "name": "/lib/x.so", "bytes": 1000},
        {"pid": "x", "bytes": 5},
    ]
    note = {"process-image": {"sizes": areas}}
    changes = {"extensions": {"sizes": {"process": 9000}, "notes": note}}
    captures.publish_one(tmp_path / "one", root, tags=["demo"], changes=changes)
    cli.env["COLDSNAP_STORE"] = f"oci-layout:{root}"
    text = cli("artifact", "inspect", "demo", "--size").out
    lines = [line.split() for line in text.splitlines()]
    assert ["7", "core", "7.8", "KiB", "89", "%", "█████████████████████"] in lines
    assert any(line[:4] == ["anonymous", "5.9", "KiB", "67"] for line in lines)
    assert lines.index(["largest", "areas"]) < next(
        number for number, line in enumerate(lines) if line and line[-1] == "/lib/x.so"
    )
    found = cli("artifact", "inspect", "demo", "--search-payload", "--json").json
    assert found["found"] is False
    assert found["constant_extents"] == ["layer.0", "layer.1"]


def test_diff_names_the_fields_and_the_model_files(cli, tmp_path) -> None:
    root = tmp_path / "store"
    for tag, argument, written in (("old", "--a", 1), ("new", "--b", 2)):
        files = {"files": {"model.safetensors": [100, written]}}
        extensions = {
            "sizes": {"process": 1 << 20 if tag == "old" else 3 << 20},
            "notes": {"model-files": files},
            "mapped_files": [{"path": "/lib/x.so", "bytes": written}],
        }
        draft = captures.make_draft({"objects": [], "payloads": []})
        launch = draft["launch"]
        launch["units"][0]["command"][1] = argument
        changes = {"extensions": extensions, "launch": launch}
        captures.publish_one(tmp_path / tag, root, tags=[tag], changes=changes)
    cli.env["COLDSNAP_STORE"] = f"oci-layout:{root}"
    lines = cli("artifact", "diff", "old", "new").out.splitlines()
    assert "~ launch.units[0].command[1]  --a -> --b" in lines
    assert "~ size of process  1 MiB -> 3 MiB" in lines
    assert "~ mapped /lib/x.so  1 B -> 2 B" in lines
    assert any(line.startswith("~ model file model.safetensors  100 B, written") for line in lines)
    same = cli("artifact", "diff", "old", "old").out
    assert same.startswith("No differences.")
