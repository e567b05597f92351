"""Files of an artifact, and the three ways to its weights: payload packs, native, recovery."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from coldsnap.artifact.decode import Record
from coldsnap.artifact.drivers import DriverId
from coldsnap.artifact.rules import Bytes, Count, Digest, Id, Line, Owner, RelativePath

PAYLOAD_ROLE = "model-weight-payload"
PAYLOAD_INDEX_ROLE = "model-weight-payload-index"
MAX_OBJECTS = 100_000


@dataclass(frozen=True)
class FileObject(Record):
    """One file: what it is for, whose it is, where it lies and what it holds."""

    role: Id
    owner: Owner
    path: RelativePath
    """Below the root of the capsule."""
    bytes: Bytes
    sha256: Digest


Objects = Annotated[tuple[FileObject, ...], Count(0, MAX_OBJECTS)]


@dataclass(frozen=True)
class ModelPayloads(Record):
    """The packs with the model's bytes, one per worker; equal packs may share one file."""

    objects: Objects
    repository: Line | None = None
    revision: Line | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.repository and not self.revision:
            yield "/revision", "must be given with a repository"
        owners = [item.owner for item in self.objects]
        if len(set(owners)) != len(owners):
            yield "/objects", "a worker has two packs"
        for index, item in enumerate(self.objects):
            if item.role != PAYLOAD_ROLE:
                yield f"/objects/{index}/role", f"must be {PAYLOAD_ROLE}"
            if item.path != pack_path(item.sha256):
                yield f"/objects/{index}/path", f"must be {pack_path(item.sha256)}"
            if not item.owner.startswith("worker/"):
                yield f"/objects/{index}/owner", "must be worker/ID"


def pack_path(sha256: str) -> str:
    """Where the pack of that digest lies in a capsule."""
    return f"model-payloads/sha256/{sha256.removeprefix('sha256:')}.pack"


def index_path(sha256: str) -> str:
    """Where the index of the pack of that digest lies."""
    return f"model-payloads/sha256/{sha256.removeprefix('sha256:')}.index.json"


@dataclass(frozen=True)
class NativeWeights(Record):
    snapshot_driver: DriverId


@dataclass(frozen=True)
class RecoveryWeights(Record):
    """The pinned safetensors that the weights can always be rebuilt from."""

    source: Literal["huggingface-safetensors", "safetensors"]
    model_id: Line
    revision: Line
    snapshot_driver: DriverId
    load_path: Line = ""
    replay_plan: Objects = ()
    """One object per worker; empty where the engine reloads by its own means."""


@dataclass(frozen=True)
class Weights(Record):
    recovery: RecoveryWeights
    model_payloads: ModelPayloads | None = None
    native: NativeWeights | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.native is not None and self.model_payloads is None:
            yield "/native", "needs model_payloads"
