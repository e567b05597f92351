"""A payload that its engine left as a draft: completed once the engine serves again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import read_regular
from coldsnap.artifact.pack_index import MAX_INDEX_BYTES, read_index
from coldsnap_runtime.hydrate import finish_draft, is_draft, load_library

if TYPE_CHECKING:
    from pathlib import Path

_PACK, _INDEX = "payload.pack", "payload.index.json"


def finish_payload(folder: Path, threads: int) -> dict[Path, str]:
    """Complete the draft in `folder`; the digests of what is durable now (none: no draft there).

    Args:
        folder: with payload.pack and payload.index.json, or not there.
        threads: how many may read and check.

    Raises:
        ColdSnapError: ``checkpoint.payload-damaged``, ``hydrate.library``, ``pack.*``, ``file.*``.
    """
    body, index = folder / _PACK, folder / _INDEX
    if not (body.is_file() and index.is_file()):
        return {}
    if not is_draft(read_index(read_regular(index, MAX_INDEX_BYTES))):
        return {}
    library = load_library()
    if library is None:
        raise ColdSnapError(
            "hydrate.library",
            "libcoldsnap_hydrate cannot be used here, but the engine wrote its payload by it",
            remedy="stage the runtime pack again, with its native library",
        )
    try:
        made = finish_draft(library, body, index, threads=threads)
    except ColdSnapError as error:
        if error.code.startswith("pack."):
            raise damaged_payload(error) from error
        raise
    return {body: made.sha256, index: made.index_sha256}


def damaged_payload(found: ColdSnapError | None = None) -> ColdSnapError:
    """A pack that its disk damaged since the engine wrote it must not become an artifact."""
    return ColdSnapError(
        "checkpoint.payload-damaged",
        "the model bytes that the engine exported are not what it wrote",
        details=(found.message,) if found else (),
        cause="the disk of the state folder lost or changed them, or another program did",
        remedy="check that disk (dmesg), then capture again",
    )
