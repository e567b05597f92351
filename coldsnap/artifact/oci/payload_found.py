"""Whether an artifact holds model bytes outside of its payload packs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import open_regular, read_regular
from coldsnap.artifact.oci.payload_state import payload_fault
from coldsnap.artifact.pack_index import MAX_INDEX_BYTES, Extent, read_index
from coldsnap.artifact.payload_samples import Sample, samples_of
from coldsnap.artifact.payload_search import Searched, search
from coldsnap.artifact.weights import PAYLOAD_INDEX_ROLE, PAYLOAD_ROLE, index_path

if TYPE_CHECKING:
    from coldsnap.artifact.oci.layout import Store
    from coldsnap.artifact.oci.read import Artifact


@dataclass(frozen=True)
class PayloadFound:
    """What was looked for, where, and what of it was there."""

    searched: Searched
    samples: int
    extents: int
    """Extents with at least one sample."""
    constant: tuple[str, ...]
    """Extents of which nothing can be looked for: all their bytes are alike, or too few."""
    payload_bytes: int

    def to_json(self) -> dict[str, Any]:
        return {
            "found": bool(self.searched.hits),
            "samples": self.samples,
            "extents": self.extents,
            "constant_extents": list(self.constant),
            "payload_bytes": self.payload_bytes,
            "searched_bytes": self.searched.bytes,
            "searched_files": self.searched.files,
            "seconds": round(self.searched.seconds, 3),
            "hits": [vars(hit) for hit in self.searched.hits],
        }


def find_payload(store: Store, artifact: Artifact, progress: Callable[[int], None]) -> PayloadFound:
    """Look for samples of every extent in every other file of the artifact.

    Raises:
        ColdSnapError: ``artifact.no-payload``, ``store.blob-missing``, ``store.blob-differs``,
            ``store.blob-quarantined``, ``pack.*``, ``file.*``.
    """
    files = artifact.manifest.files()
    packs = [file for file in files if file.role == PAYLOAD_ROLE]
    if not packs:
        raise ColdSnapError(
            "artifact.no-payload",
            f"{artifact.digest} has no payload pack whose bytes could be looked for",
            cause="its engine keeps the weights in the process image, or the capture exported none",
        )
    if (fault := payload_fault(store, artifact.manifest)) is not None:
        raise fault
    by_path = {file.path: file for file in files}
    samples: dict[bytes, Sample] = {}
    extents, constant, total = 0, list[str](), 0
    with store.shared():
        for pack in packs:
            listed = by_path.get(index_path(pack.digest))
            if listed is None:
                raise ColdSnapError("image.incomplete", f"{pack.path} has no index")
            index = read_index(read_regular(store.blob(listed.digest), MAX_INDEX_BYTES))
            with open_regular(store.blob(pack.digest)) as body:
                found = samples_of(body.fileno(), index.extents)
            samples |= {sample.data: sample for sample in found.found}
            extents += found.extents
            constant += found.constant
            total += _bytes(index.extents)
        others = [
            (file.path, store.blob(file.digest))
            for file in files
            if file.role not in (PAYLOAD_ROLE, PAYLOAD_INDEX_ROLE)
        ]
        searched = search(others, tuple(samples.values()), progress=progress)
    return PayloadFound(searched, len(samples), extents, tuple(constant), total)


def _bytes(extents: tuple[Extent, ...]) -> int:
    return sum(extent.length for extent in extents)
