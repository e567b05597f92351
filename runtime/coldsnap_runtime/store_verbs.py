"""The store's verbs that change or check it: publish, tag, verify, remove artifacts."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from coldsnap.artifact.decode import decode
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import write_atomic
from coldsnap.artifact.oci import layout, read
from coldsnap.artifact.oci.collect import collect as remove_old
from coldsnap.artifact.oci.collect import delete as remove_entry
from coldsnap.artifact.oci.publish import publish as put
from coldsnap.artifact.oci.publish import tag as move_tags
from coldsnap.artifact.oci.verify import verify as check
from coldsnap.artifact.rules import AbsolutePath, Count, Digest, Line, Natural
from coldsnap_runtime.image_sweep import left_by_ended, sweep_ended
from coldsnap_runtime.ownership import give_back, owner_of
from coldsnap_runtime.store_reading import ReferenceRequest, StoreRequest, opened

if TYPE_CHECKING:
    from coldsnap_runtime.context import Context

PUBLISHED = "published.json"
"""In a capture's folder: where it was published; the folder may go then."""
_FORGOTTEN = 7 * 86400.0
"""Seconds that the capture of a run which did not end is kept for plan resume."""


@dataclass(frozen=True, kw_only=True)
class PublishRequest(StoreRequest):
    capture_dir: AbsolutePath
    descriptor: dict[str, Any]
    tags: Annotated[tuple[Line, ...], Count(0, 64)] = ()
    name: Line = ""


@dataclass(frozen=True, kw_only=True)
class TagRequest(StoreRequest):
    tags: Annotated[tuple[Line, ...], Count(1, 64)]
    manifest: Digest | None = None
    """None: nothing has these tags any longer."""


@dataclass(frozen=True, kw_only=True)
class CollectRequest(StoreRequest):
    keep: Natural | None = None
    """Artifacts to keep of each name; None: all."""
    dry_run: bool = False


def publish(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """``{manifest, bytes, bytes_added, bytes_copied, tags}``; the same again adds nothing."""
    request = decode(PublishRequest, value, what="store.publish", code="request.invalid")
    folder = Path(request.capture_dir)
    context.phase("publishing")
    try:
        done = put(
            request.path,
            folder,
            request.descriptor,
            request.tags,
            name=request.name,
            progress=lambda count: context.progress("publish", count),
        )
    except ColdSnapError as error:
        if error.code == "file.disk-full":
            _make_room(request)
        raise
    finally:
        give_back(request.path, owner_of(context.state_dir))
    result = {key: item for key, item in done.to_json().items() if key != "descriptor"}
    _mark_published(folder, result)
    if folder.is_relative_to(context.path("captures")):
        shutil.rmtree(folder, ignore_errors=True)  # its bytes are the store's now
    return {**result, "tags": list(request.tags)}


def _make_room(request: StoreRequest) -> None:
    """What did get in would help the next try, but a full disk is everybody's trouble."""
    with contextlib.suppress(ColdSnapError, OSError):
        store = opened(request)
        if store is not None:
            remove_old(store, patience=0.0)


def verify(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """Every file against its digest."""
    request = decode(ReferenceRequest, value, what="store.verify", code="request.invalid")
    store = layout.open_store(request.path)
    artifact = read.find(store, request.ref)

    def progress(done: int) -> None:
        context.progress("verify", done, artifact.bytes)

    return check(store, artifact.digest, request.policy, progress).to_json()


def tag(value: dict[str, Any], context: Context) -> dict[str, Any]:
    del context
    request = decode(TagRequest, value, what="store.tag", code="request.invalid")
    if request.manifest is None and opened(request) is None:
        return {"manifest": None, "tags": list(request.tags)}
    move_tags(layout.open_store(request.path), request.manifest, request.tags)
    return {"manifest": request.manifest, "tags": list(request.tags)}


def delete(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """Out of the index; the bytes go with the next collection."""
    del context
    request = decode(ReferenceRequest, value, what="store.delete", code="request.invalid")
    entry = remove_entry(layout.open_store(request.path), request.ref)
    return {"manifest": entry.manifest, "tags": list(entry.tags)}


def collect(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """``{removed: [manifest digests], pinned, blobs, bytes, dry_run, ended: [units]}``.

    `ended`: units whose generations had ended without letting go of their images.
    """
    request = decode(CollectRequest, value, what="store.collect", code="request.invalid")
    store = opened(request)
    ended = left_by_ended(context) if request.dry_run else sweep_ended(context)
    if store is None:
        nothing = {"removed": [], "pinned": [], "blobs": 0, "bytes": 0}
        return {**nothing, "dry_run": request.dry_run, "ended": ended}
    if not request.dry_run:
        drop_published(context)
    done = remove_old(store, request.keep, dry_run=request.dry_run).to_json()
    return {"removed": done.pop("artifacts"), **done, "ended": ended}


def drop_published(context: Context, unit: str = "*") -> None:
    """Remove captures that a store has: their bytes live on there, or were collected.

    Those of runs that nobody went on with for a week go, too.
    """
    folder = Path(context.path("captures"))
    for note in folder.glob(f"{unit}/*/{PUBLISHED}"):
        shutil.rmtree(note.parent, ignore_errors=True)
    for capture in folder.glob(f"{unit}/*"):
        with contextlib.suppress(OSError):
            if time.time() - capture.stat().st_mtime > _FORGOTTEN:
                shutil.rmtree(capture, ignore_errors=True)


def _mark_published(folder: Path, result: dict[str, Any]) -> None:
    # Without this note the folder only stays longer than it must.
    with contextlib.suppress(ColdSnapError, OSError):
        if (folder / "capture.json").exists():
            write_atomic(folder / PUBLISHED, json.dumps(result).encode())
