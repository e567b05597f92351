"""Blobs that were found damaged: never used again, and never removed by us either.

One note per blob, ``quarantine/<hex>.json``, bound to the very file that was looked at. The note
is void once the blob is another file (published anew), or once a full verification found it sound.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from coldsnap.artifact import canonical
from coldsnap.artifact.decode import Record, decode, parse
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import read_regular, write_atomic
from coldsnap.artifact.rules import Digest, Prose, Wide
from coldsnap.artifact.validation import ContentIdentity, content_identity

if TYPE_CHECKING:
    from pathlib import Path

    from coldsnap.artifact.oci.layout import Store

_MAX_NOTE = 1 << 16
_MAX_REASON = 2000


@dataclass(frozen=True)
class Condemned(Record):
    blob: Digest
    reason: Prose
    content_identity: ContentIdentity
    unix_ns: Wide
    format: Literal[1] = 1


def condemn(store: Store, digest: str, reason: str) -> bool:
    """Note that a blob is damaged; False where that cannot be written or it is not there.

    Its validation record goes too, so that whoever verifies it next reads every byte.
    """
    try:
        found = os.lstat(store.blob(digest))
        note = Condemned(
            digest, reason[:_MAX_REASON] or "damaged", content_identity(found), time.time_ns()
        )
        place = _place(store, digest)
        place.parent.mkdir(mode=0o700, exist_ok=True)
        write_atomic(place, canonical.dumps(note.to_json()).encode("ascii"))
        store.record(digest).unlink(missing_ok=True)
    except (ColdSnapError, OSError):
        return False
    return True


def reason_against(store: Store, digest: str) -> str:
    """Why a blob must not be used; empty for one that nothing is known against."""
    place = _place(store, digest)
    try:
        data = read_regular(place, _MAX_NOTE)
        note = decode(Condemned, parse(data, limit=_MAX_NOTE, what="note"), what="note")
        found = os.lstat(store.blob(digest))
    except (ColdSnapError, OSError):
        return ""
    same = note.blob == digest and note.content_identity == content_identity(found)
    return note.reason if same else ""


def absolve(store: Store, digest: str) -> None:
    """Every byte of the blob was read and is what it must be."""
    try:
        _place(store, digest).unlink(missing_ok=True)
    except OSError:
        return


def _place(store: Store, digest: str) -> Path:
    return store.root / "quarantine" / f"{digest.removeprefix('sha256:')}.json"
