"""Hashing the files of a capture once: digests now, evidence for the store later.

The runtime measures a capture folder when it is complete; the evidence file it leaves there lets
`oci.publish` take unchanged files without reading them a second time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from coldsnap.artifact import canonical
from coldsnap.artifact.decode import Record, decode, parse
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import open_regular, read_regular, write_atomic
from coldsnap.artifact.rules import Bytes, Count, Digest, RelativePath
from coldsnap.artifact.validation import ContentIdentity, content_identity, hash_unchanged

if TYPE_CHECKING:
    from collections.abc import Callable

EVIDENCE = ".coldsnap-measured.json"
MAX_EVIDENCE_BYTES = 64 << 20


@dataclass(frozen=True)
class Measured(Record):
    """One file below the measured folder."""

    bytes: Bytes
    sha256: Digest
    content_identity: ContentIdentity


@dataclass(frozen=True)
class Evidence(Record):
    files: Annotated[Mapping[RelativePath, Measured], Count(0, 1_000_000, of_object=True)]
    format: Literal[1] = 1
    kind: Literal["coldsnap-measured-files"] = "coldsnap-measured-files"


def measure(
    folder: str | os.PathLike[str],
    paths: Iterable[str],
    progress: Callable[[int], None] | None = None,
) -> dict[str, Measured]:
    """Bytes and digest of each file, and the evidence file in `folder`.

    Args:
        folder: of the capture.
        paths: relative to it; regular files.
        progress: gets the bytes hashed so far, over all files.

    Raises:
        ColdSnapError: ``file.missing``, ``file.not-regular``, ``payload.changed``,
            ``file.disk-full``.
    """
    root = Path(folder)
    found: dict[str, Measured] = {}
    done = 0
    for path in paths:
        shown = None if progress is None else _shifted(progress, done)
        with open_regular(root / path) as file:
            sha256, identity = hash_unchanged(file, path, shown)
        found[path] = Measured(identity.size, sha256, identity)
        done += identity.size
    evidence = Evidence(found)
    write_atomic(root / EVIDENCE, canonical.dumps(evidence.to_json()).encode("ascii"))
    return found


def read_evidence(folder: str | os.PathLike[str]) -> Mapping[str, Measured]:
    """What was measured in `folder`; empty if nothing was, or the file is not ours."""
    try:
        data = read_regular(Path(folder) / EVIDENCE, MAX_EVIDENCE_BYTES)
        value = parse(data, limit=MAX_EVIDENCE_BYTES, what=EVIDENCE)
        return decode(Evidence, value, what=EVIDENCE).files
    except ColdSnapError:
        return {}


def is_measured(measured: Measured | None, stat: os.stat_result, sha256: str) -> bool:
    """Whether a file with this stat is the one measured, unchanged, with that digest."""
    if measured is None or measured.sha256 != sha256:
        return False
    return measured.content_identity == content_identity(stat)


def _shifted(progress: Callable[[int], None], start: int) -> Callable[[int], None]:
    return lambda done: progress(start + done)
