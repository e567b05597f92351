"""The store's verbs that only read: what is there, and what it is.

Apart from those that change a store, because a plan asks them before every step.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from coldsnap.artifact.decode import Record, decode
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.oci import layout, read
from coldsnap.artifact.oci.payload_state import capsule_fault, payload_fault, state_of
from coldsnap.artifact.rules import Count, Digest, Id, Line, Text
from coldsnap.artifact.validation import Policy
from coldsnap_runtime.lease import RunId
from coldsnap_runtime.model_files import model_fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coldsnap_runtime.context import Context

StoreName = Annotated[str, Text(r"(?:oci-layout:)?/[^\x00]*", 1, 4096, "a folder's path")]


@dataclass(frozen=True, kw_only=True)
class StoreRequest(Record):
    store: StoreName
    run: RunId | None = None
    unit: Id | None = None

    @property
    def path(self) -> Path:
        return Path(self.store.removeprefix("oci-layout:"))


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
class HasRequest(StoreRequest):
    digests: Annotated[tuple[Digest, ...], Count(0, 200_000)]


def resolve(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """``{manifest, descriptor, tags, bytes, model_changed, payload_fault, capsule_fault}``.

    None of it without an artifact. ``payload_fault``: ``{state, error}`` where the payload is
    missing, cut or quarantined; ``capsule_fault``: the error of a capsule's file that is.
    """
    del context
    request = decode(ResolveRequest, value, what="store.resolve", code="request.invalid")
    nothing: dict[str, Any] = {"manifest": None, "descriptor": None, "tags": [], "bytes": 0}
    nothing |= {"model_changed": "", "payload_fault": None, "capsule_fault": None}
    store = opened(request)
    if store is None:
        return nothing
    found = read.resolve(
        store, request.ref, request_sha256=request.request_sha256, unit=request.unit
    )
    if found is None:
        return nothing
    fault = payload_fault(store, found.manifest)
    damaged = capsule_fault(store, found.manifest)
    return {
        "manifest": found.digest,
        "descriptor": found.descriptor.to_json(),
        "tags": list(found.tags),
        "bytes": found.bytes,
        "model_changed": _model_changed(found.descriptor.extensions.notes),
        "payload_fault": fault and {"state": state_of(fault), "error": fault.to_json()},
        "capsule_fault": damaged and damaged.to_json(),
    }


def _model_changed(notes: Mapping[str, Any]) -> str:
    """How the model's folder on this host differs from the captured one; empty if it does not."""
    fault = model_fault(notes.get("model-files"), ())
    return "" if fault is None else fault.message


def list_artifacts(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """``{artifacts: [...]}``, oldest first."""
    del context
    request = decode(StoreRequest, value, what="store.list", code="request.invalid")
    store = opened(request)
    found = read.list_artifacts(store) if store else []
    return {"artifacts": [{**asdict(item), "tags": list(item.tags)} for item in found]}


def inspect(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """The descriptor, and bytes by role and owner."""
    del context
    request = decode(ReferenceRequest, value, what="store.inspect", code="request.invalid")
    return read.inspect(read.find(layout.open_store(request.path), request.ref))


def has(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """``{present: [...], missing: [...]}`` of blobs, by one stat each."""
    del context
    request = decode(HasRequest, value, what="store.has", code="request.invalid")
    store = opened(request)
    there = {d: store is not None and store.blob(d).is_file() for d in request.digests}
    return {
        "present": [digest for digest, is_there in there.items() if is_there],
        "missing": [digest for digest, is_there in there.items() if not is_there],
    }


def opened(request: StoreRequest) -> layout.Store | None:
    """None if there is no store yet."""
    try:
        return layout.open_store(request.path)
    except ColdSnapError as error:
        if error.code == "store.missing":
            return None
        raise
