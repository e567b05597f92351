"""The documents of an OCI image layout, as far as a capsule uses them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from coldsnap.artifact import canonical
from coldsnap.artifact.decode import Record
from coldsnap.artifact.rules import Bytes, Count, Digest, Line, Prose, RelativePath
from coldsnap.artifact.weights import PAYLOAD_INDEX_ROLE, PAYLOAD_ROLE

ARTIFACT_TYPE = "application/vnd.coldsnap.capsule.v1+json"
CONFIG_TYPE = "application/vnd.coldsnap.artifact.v9+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
LAYOUT = {"imageLayoutVersion": "1.0.0"}

TITLE = "org.opencontainers.image.title"
REF_NAME = "org.opencontainers.image.ref.name"
ROLE = "vnd.coldsnap.role"
OWNER = "vnd.coldsnap.owner"
NAME = "vnd.coldsnap.name"
REQUEST = "vnd.coldsnap.request-sha256"
CAPTURE = "vnd.coldsnap.capture-id"
UNITS = "vnd.coldsnap.units"
CREATED = "org.opencontainers.image.created"

MAX_MANIFEST_BYTES = 32 << 20
"""Ours; registries commonly take 4 MiB, which is 10,000 files or more."""
MAX_INDEX_BYTES = 64 << 20
MAX_DESCRIPTOR_BYTES = 64 << 20

_MEDIA_TYPES: Mapping[str, str] = {
    "criu": "application/vnd.coldsnap.criu.image.v1",
    "criu-image": "application/vnd.coldsnap.criu.image.v1",
    PAYLOAD_ROLE: "application/vnd.coldsnap.payload.pack.v1",
    PAYLOAD_INDEX_ROLE: "application/vnd.coldsnap.payload.index.v1+json",
    "shm": "application/vnd.coldsnap.shm.file.v1",
    "cache": "application/vnd.coldsnap.cache.file.v1",
}
OTHER_TYPE = "application/vnd.coldsnap.file.v1"


def media_type(role: str) -> str:
    """Media type of a layer for a file of that role."""
    return _MEDIA_TYPES.get(role, OTHER_TYPE)


Annotations = Annotated[Mapping[Line, Prose], Count(0, 256, of_object=True)]


@dataclass(frozen=True)
class Content(Record):
    """An OCI content descriptor."""

    ignores_unknown: ClassVar[bool] = True

    mediaType: Line  # noqa: N815 - the name in the OCI specification
    digest: Digest
    size: Bytes
    annotations: Annotations = field(default_factory=dict)


@dataclass(frozen=True)
class Layer:
    """One file of a capsule."""

    path: RelativePath
    role: str
    owner: str
    digest: str
    size: int


@dataclass(frozen=True)
class Manifest(Record):
    """The manifest of a capsule: its config is the descriptor, each layer one file."""

    ignores_unknown: ClassVar[bool] = True

    schemaVersion: Literal[2]  # noqa: N815
    artifactType: Literal["application/vnd.coldsnap.capsule.v1+json"]  # noqa: N815
    config: Content
    layers: Annotated[tuple[Content, ...], Count(1, 200_000)]
    mediaType: Literal["application/vnd.oci.image.manifest.v1+json"] = (  # noqa: N815
        "application/vnd.oci.image.manifest.v1+json"
    )
    annotations: Annotations = field(default_factory=dict)

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.config.mediaType != CONFIG_TYPE:
            yield "/config/mediaType", f"must be {CONFIG_TYPE}"
        seen: set[str] = set()
        for index, layer in enumerate(self.layers):
            title = layer.annotations.get(TITLE)
            if title is None:
                yield f"/layers/{index}/annotations", f"lacks {TITLE}"
            elif title in seen:
                yield f"/layers/{index}/annotations", f"a second file {title!r}"
            else:
                seen.add(title)

    def files(self) -> tuple[Layer, ...]:
        return tuple(
            Layer(
                path=layer.annotations[TITLE],
                role=layer.annotations.get(ROLE, ""),
                owner=layer.annotations.get(OWNER, ""),
                digest=layer.digest,
                size=layer.size,
            )
            for layer in self.layers
        )


def canonical_blob(value: Any) -> tuple[bytes, str]:
    """(bytes, digest) of a JSON document as it is stored."""
    data = canonical.dumps(value).encode("ascii")
    return data, "sha256:" + hashlib.sha256(data).hexdigest()
