"""The store's verbs: publish, find, check, remove artifacts in an OCI layout of this host."""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from coldsnap.artifact.decode import Record, decode
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import write_atomic
from coldsnap.artifact.oci import layout, read
from coldsnap.artifact.oci.collect import collect as remove_old
from coldsnap.artifact.oci.collect import delete as remove_entry
from coldsnap.artifact.oci.publish import publish as put
from coldsnap.artifact.oci.publish import tag as move_tags
from coldsnap.artifact.oci.verify import verify as check
from coldsnap.artifact.rules import AbsolutePath, Count, Digest, Id, Line, Natural, Text
from coldsnap.artifact.validation import Policy
from coldsnap_runtime.lease import RunId
from coldsnap_runtime.ownership import give_back, owner_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coldsnap_runtime.context import Context

StoreName = Annotated[str, Text(r"(?:oci-layout:)?/[^\x00]*", 1, 4096, "a folder's path")]
PUBLISHED = "published.json"
"""In a capture's folder: where it was published; the folder may go then."""


@dataclass(frozen=True, kw_only=True)
class StoreRequest(Record):
    store: StoreName
    run: RunId | None = None
    unit: Id | None = None

    @property
    def path(self) -> Path:
        return Path(self.store.removeprefix("oci-layout:"))


@dataclass(frozen=True, kw_only=True)
class PublishRequest(StoreRequest):
    capture_dir: AbsolutePath
    descriptor: dict[str, Any]
    tags: Annotated[tuple[Line, ...], Count(0, 64)] = ()
    name: Line = ""


@dataclass(frozen=True, kw_only=True)
class ResolveRequest(StoreRequest):
    """`ref` (a tag, a digest, or its start) or `request_sha256`, not both."""

    ref: Line | None = None
    request_sha256: Digest | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        if (self.ref is None) == (self.request_sha256 is None):
            yield "/ref", "give either ref or request_sha256"


@dataclass(frozen=True, kw_only=True)
class ReferenceRequest(StoreRequest):
    ref: Line
    policy: Policy = "full"


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


@dataclass(frozen=True, kw_only=True)
class HasRequest(StoreRequest):
    digests: Annotated[tuple[Digest, ...], Count(0, 200_000)]


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
    finally:
        give_back(request.path, owner_of(context.state_dir))
    result = {key: item for key, item in done.to_json().items() if key != "descriptor"}
    _mark_published(folder, result)
    if folder.is_relative_to(context.path("captures")):
        shutil.rmtree(folder, ignore_errors=True)  # its bytes are the store's now
    return {**result, "tags": list(request.tags)}


def resolve(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """``{manifest, descriptor, tags, bytes}``, all null or empty where there is none."""
    del context
    request = decode(ResolveRequest, value, what="store.resolve", code="request.invalid")
    nothing: dict[str, Any] = {"manifest": None, "descriptor": None, "tags": [], "bytes": 0}
    store = _opened(request)
    if store is None:
        return nothing
    found = read.resolve(
        store, request.ref, request_sha256=request.request_sha256, unit=request.unit
    )
    if found is None:
        return nothing
    return {
        "manifest": found.digest,
        "descriptor": found.descriptor.to_json(),
        "tags": list(found.tags),
        "bytes": found.bytes,
    }


def list_artifacts(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """``{artifacts: [...]}``, oldest first."""
    del context
    request = decode(StoreRequest, value, what="store.list", code="request.invalid")
    store = _opened(request)
    found = read.list_artifacts(store) if store else []
    return {"artifacts": [{**asdict(item), "tags": list(item.tags)} for item in found]}


def inspect(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """The descriptor, and bytes by role and owner."""
    del context
    request = decode(ReferenceRequest, value, what="store.inspect", code="request.invalid")
    return read.inspect(read.find(layout.open_store(request.path), request.ref))


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
    if request.manifest is None and _opened(request) is None:
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
    """``{removed: [manifest digests], pinned, blobs, bytes, dry_run}``."""
    request = decode(CollectRequest, value, what="store.collect", code="request.invalid")
    store = _opened(request)
    if store is None:
        return {"removed": [], "pinned": [], "blobs": 0, "bytes": 0, "dry_run": request.dry_run}
    if not request.dry_run:
        drop_published(context)
    done = remove_old(store, request.keep, dry_run=request.dry_run).to_json()
    return {"removed": done.pop("artifacts"), **done}


def has(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """``{present: [...], missing: [...]}`` of blobs, by one stat each."""
    del context
    request = decode(HasRequest, value, what="store.has", code="request.invalid")
    store = _opened(request)
    there = {d: store is not None and store.blob(d).is_file() for d in request.digests}
    return {
        "present": [digest for digest, is_there in there.items() if is_there],
        "missing": [digest for digest, is_there in there.items() if not is_there],
    }


def drop_published(context: Context, unit: str = "*") -> None:
    """Remove captures that a store has: their bytes live on there, or were collected."""
    for note in Path(context.path("captures")).glob(f"{unit}/*/{PUBLISHED}"):
        shutil.rmtree(note.parent, ignore_errors=True)


def _mark_published(folder: Path, result: dict[str, Any]) -> None:
    # Without this note the folder only stays longer than it must.
    with contextlib.suppress(ColdSnapError, OSError):
        if (folder / "capture.json").exists():
            write_atomic(folder / PUBLISHED, json.dumps(result).encode())


def _opened(request: StoreRequest) -> layout.Store | None:
    """None if there is no store yet."""
    try:
        return layout.open_store(request.path)
    except ColdSnapError as error:
        if error.code == "store.missing":
            return None
        raise
