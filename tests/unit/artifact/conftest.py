"""A small capture on disk and the draft of its descriptor, as the runtime and a plan give them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coldsnap.artifact.descriptor import complete
from coldsnap.artifact.measure import measure
from coldsnap.artifact.oci.publish import Published, publish
from coldsnap.artifact.pack import write_pack

REQUEST = "sha256:" + "a" * 64


def make_capture(folder: Path, *, seed: str = "one", payload: bool = True) -> dict[str, Any]:
    """Files of a capture below `folder`; returns {objects, payloads}."""
    files = {
        "criu/inventory.img": (b"inventory " + seed.encode(), "criu-image"),
        "criu/pages-1.img": ((seed.encode() * 4000)[:9000], "criu-image"),
        "criu/empty.img": (b"", "criu-image"),
        "shm/psm_1": (b"shared" * 100, "shm"),
        "caches/0/kernel.so": (b"\x7fELF" + b"code" * 50, "cache"),
        "caches/1/kernel.so": (b"\x7fELF" + b"code" * 50, "cache"),
        "capture.json": (b'{"pid": 7}', "capture-report"),
    }
    for path, (data, _) in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    roles = {path: role for path, (_, role) in files.items()}
    payloads = []
    if payload:
        pack = write_pack(
            folder / "model-payloads",
            [("layer.0", 5000, b"w" * 5000), ("layer.1", 3, b"abc")],
        )
        packs = {pack.body: "model-weight-payload", pack.index: "model-weight-payload-index"}
        payloads = [str(path.relative_to(folder)) for path in packs]
        roles |= {str(path.relative_to(folder)): role for path, role in packs.items()}
    measured = measure(folder, sorted(roles))
    objects = [
        {
            "role": roles[path],
            "owner": "unit/u0",
            "path": path,
            "bytes": item.bytes,
            "sha256": item.sha256,
        }
        for path, item in measured.items()
    ]
    return {
        "objects": [item for item in objects if item["path"] not in payloads],
        "payloads": [item for item in objects if item["path"] in payloads],
    }


def make_draft(capture: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The descriptor that a plan's publish step gives to the store."""
    weights: dict[str, Any] = {
        "recovery": {
            "source": "safetensors",
            "model_id": "tiny",
            "revision": "",
            "snapshot_driver": "criu",
        }
    }
    if capture["payloads"]:
        weights["model_payloads"] = {"objects": capture["payloads"]}
    draft = {
        "format": 9,
        "kind": "coldsnap-snapshot-artifact",
        "state": "committed",
        "capture_id": "c1",
        "request_sha256": REQUEST,
        "snapshot_driver": {
            "id": "criu",
            "abi": 1,
            "capture_boundary": "live-cpu-process-tree",
            "minimum_nvidia_driver_major": 0,
            "base_requirements": ["criu-process-tree"],
        },
        "requires": {"format": 1, "features": [{"id": "criu-process-tree"}]},
        "launch": {
            "engine": "reference",
            "model": {"id": "tiny", "revision": "", "source": "path"},
            "units": [{"id": "u0", "index": 0, "command": ["serve", "--port", "8000"]}],
            "execution": {
                "workers": [{"id": "w0", "unit": "u0", "service": "serve", "process_slot": 0}],
                "groups": [
                    {"id": "world", "kind": "tp:world", "service": "serve", "members": ["w0"]}
                ],
                "services": [{"id": "serve", "role": "serve", "workers": ["w0"]}],
            },
        },
        "compatibility": {"units": [{"unit": "u0", "architecture": "x86_64"}]},
        "capsule": {"objects": capture["objects"]},
        "weights": weights,
        "acceptance": {"accepted": True, "expected": " Paris"},
        "extensions": {"cold_start_seconds": 9.5, "sizes": {"process": 9000}},
    }
    return draft | changes


def publish_one(root: Path, store: Path, *, seed: str = "one", **options: Any) -> Published:
    """Capture into `root`/SEED and publish it."""
    folder = root / f"capture-{seed}-{os.urandom(3).hex()}"
    draft = make_draft(make_capture(folder, seed=seed))
    tags = options.pop("tags", ("latest",))
    return publish(store, folder, draft | options.pop("changes", {}), tags, **options)


@pytest.fixture
def capture() -> Callable[..., dict[str, Any]]:
    return make_capture


@pytest.fixture
def draft() -> Callable[..., dict[str, Any]]:
    return make_draft


@pytest.fixture(scope="session")
def valid_descriptor(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("capture")
    return complete(make_draft(make_capture(folder))).to_json()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def publish_capture(tmp_path: Path, store: Path) -> Callable[..., Published]:
    """Capture with `seed` and publish it into `store`."""

    def publish_it(seed: str = "one", **options: Any) -> Published:
        return publish_one(tmp_path, options.pop("store", store), seed=seed, **options)

    return publish_it
