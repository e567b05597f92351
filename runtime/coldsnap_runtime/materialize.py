"""The verb ``unit.materialize``: a native payload out of an engine that came back by recovery.

The engine writes its weights, as they lie in its memory, while it serves; the pack is published
with the same capsule under a manifest of its own, which takes over the names of the old one. Where
the artifact's payload had only been damaged, the same bytes give the same manifest: it is whole
again. Doing it again does nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.decode import Record, decode
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import sha256_file
from coldsnap.artifact.oci import read
from coldsnap.artifact.oci.contents import load_contents
from coldsnap.artifact.oci.layout import open_store
from coldsnap.artifact.oci.publish import publish
from coldsnap.artifact.oci.quarantine import reason_against
from coldsnap.artifact.oci.verify import check_files
from coldsnap.artifact.rules import Id, Natural
from coldsnap.artifact.weights import PAYLOAD_INDEX_ROLE, PAYLOAD_ROLE, index_path, pack_path
from coldsnap_runtime import lease
from coldsnap_runtime.engine_door import INDEX_NAME, PACK_NAME, door_of
from coldsnap_runtime.http_calls import HttpCalls, perform_all
from coldsnap_runtime.lease import RunId
from coldsnap_runtime.ownership import give_back, owner_of
from coldsnap_runtime.payload_draft import finish_payload
from coldsnap_runtime.store_reading import StoreName
from coldsnap_runtime.timing import Timing
from coldsnap_runtime.unit_calls import find
from coldsnap_runtime.unit_record import UnitStore

if TYPE_CHECKING:
    from coldsnap.artifact.oci.layout import Store
    from coldsnap.artifact.oci.read import Artifact
    from coldsnap_runtime.context import Context
    from coldsnap_runtime.unit_record import UnitRecord

FOLDER = "materialized"
"""Below ``{dir}``: what the engine writes."""
_THREADS = 4


@dataclass(frozen=True)
class MaterializeRequest(Record):
    unit: Id
    run: RunId
    store: StoreName
    calls: HttpCalls
    """Let the engine write payload.pack and its index into ``{dir}/materialized``."""
    generation: Natural | None = None
    detach: bool = False
    """Answer at once; a job of its own goes on."""


def materialize(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """``{manifest, bytes, bytes_added, already, job}``.

    Raises:
        ColdSnapError: ``unit.wrong-state``, ``materialize.no-artifact``,
            ``materialize.nothing-written``, ``engine.*``, ``store.*``, ``file.disk-full``. The
            engine serves on, and the old artifact stays, after each.
    """
    request = decode(MaterializeRequest, value, what="unit.materialize", code="request.invalid")
    if request.detach:
        return {"job": _go_on_alone(value, context), "already": False, "manifest": None}
    timing = Timing(request.unit)
    store = open_store(Path(request.store.removeprefix("oci-layout:")))
    with lease.held(context.state_dir, request.unit, request.run):
        units, record = find(context, request, "materialize", ("serving",))
        artifact = _artifact(store, record)
    if _is_sound(store, artifact):
        done = {"manifest": artifact.digest, "bytes": 0, "bytes_added": 0, "already": True}
        return {**done, "timing": timing.to_json()}
    folder = units.paths(record.unit, record.generation).control / FOLDER
    try:
        # The unit's lock is not held: the engine serves, and its own lock orders what it is asked.
        with timing.span("export"):
            perform_all(door_of(units, record), request.calls, timing, context)
        with timing.span("identify"):
            payload = _written(folder)
        with lease.held(context.state_dir, request.unit, request.run):
            done = _publish(store, artifact, payload, timing)
            _is_now_of(context, record, str(done["manifest"]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        give_back(store.root, owner_of(context.state_dir))
    return {**done, "already": False, "timing": timing.to_json()}


def _artifact(store: Store, record: UnitRecord) -> Artifact:
    if record.artifact is None:
        raise ColdSnapError(
            "materialize.no-artifact",
            f"generation {record.generation} was started cold: there is no capsule to add to",
            f"unit {record.unit}",
            remedy="capture it: that writes the payload, too",
        )
    tags = next((e.tags for e in read.list_artifacts(store) if e.manifest == record.artifact), ())
    return read.load(store, record.artifact, tags)


def _is_sound(store: Store, artifact: Artifact) -> bool:
    with store.shared():
        contents = load_contents(store, artifact.digest)
    roles = (PAYLOAD_ROLE, PAYLOAD_INDEX_ROLE)
    packs = [layer for layer in contents.manifest.files() if layer.role in roles]
    if not packs or any(reason_against(store, layer.digest) for layer in packs):
        return False
    try:
        with store.shared():
            check_files(store, contents, "record", layers=packs)
    except ColdSnapError:
        return False
    return True


def _written(folder: Path) -> list[dict[str, Any]]:
    """The two files as a checkpoint would report them, whole and durable."""
    pack, index = folder / PACK_NAME, folder / INDEX_NAME
    if not (pack.is_file() and index.is_file()) or pack.is_symlink() or index.is_symlink():
        raise ColdSnapError(
            "materialize.nothing-written",
            "the engine wrote no payload",
            cause="its weights are in the process image, or it has no library to write packs",
            remedy="set materialize: off in the plan",
        )
    finish_payload(folder, _THREADS)
    digest = sha256_file(pack)
    rows = ((pack, PAYLOAD_ROLE, digest), (index, PAYLOAD_INDEX_ROLE, sha256_file(index)))
    return [
        {
            "role": role,
            "path": (pack_path if role == PAYLOAD_ROLE else index_path)(digest),
            "bytes": path.stat().st_size,
            "sha256": sha256,
            "source": str(path),
        }
        for path, role, sha256 in rows
    ]


def _publish(
    store: Store, artifact: Artifact, payload: list[dict[str, Any]], timing: Timing
) -> dict[str, Any]:
    """The capsule of the artifact with this payload, under all names of the artifact."""
    draft = artifact.descriptor.to_json()
    objects = [o for o in draft["capsule"]["objects"] if o["role"] != PAYLOAD_INDEX_ROLE]
    files = {str(item["path"]): str(item.pop("source")) for item in payload}
    unit = draft["launch"]["units"][0]["id"]
    new = [{**item, "owner": f"unit/{unit}"} for item in payload]
    draft["capsule"] = {**draft["capsule"], "objects": objects, "images": []}
    draft["weights"] = {**draft["weights"], "model_payloads": {"objects": new}}
    sizes = draft["extensions"].get("sizes") or {}
    draft["extensions"]["sizes"] = {**sizes, "payload": int(payload[0]["bytes"])}
    name = next((e.name for e in read.list_artifacts(store) if e.manifest == artifact.digest), "")
    with timing.span("publish", bytes=int(payload[0]["bytes"])):
        done = publish(store.root, files, draft, artifact.tags, name=name)
    return {"manifest": done.manifest, "bytes": done.bytes, "bytes_added": done.bytes_added}


def _is_now_of(context: Context, record: UnitRecord, manifest: str) -> None:
    """The generation is that of the new manifest: its capsule is the same, to the byte."""
    store = UnitStore(context.state_dir)
    now = next(g for g in store.generations(record.unit) if g.generation == record.generation)
    if now.is_live and manifest != now.artifact:
        store.update(now, artifact=manifest)


def _go_on_alone(value: dict[str, Any], context: Context) -> str:
    """Start the same verb as a job that outlives this one; its id."""
    job = f"{context.job or os.urandom(8).hex()}.materialize"
    argv = [sys.executable, context.pack, "unit.materialize", "--state-dir", context.state_dir]
    process = subprocess.Popen(
        [*argv, "--job", job],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )
    assert process.stdin is not None  # noqa: S101  (a pipe was asked for)
    process.stdin.write(json.dumps({**value, "detach": False}).encode())
    process.stdin.close()
    return job
