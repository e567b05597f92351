"""Artifacts laid out for a restore: ``images/<unit>/<token>/``, hard links to the store's blobs.

A folder lives as long as the generation restored from it, and pins its artifact in the store
under its token that long. ``<token>.json`` beside it says of which store.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import read_regular, write_atomic
from coldsnap.artifact.oci.layout import open_store
from coldsnap.artifact.oci.materialise import Materialised, materialise
from coldsnap.artifact.oci.pins import unpin
from coldsnap.artifact.weights import PAYLOAD_INDEX_ROLE, PAYLOAD_ROLE, index_path
from coldsnap_runtime.mapped_image import protect_others, release

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from coldsnap.artifact.oci.materialise import Payload
    from coldsnap.artifact.validation import Policy
    from coldsnap_runtime.context import Context

_TOKEN = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Image:
    token: str
    folder: Path
    payloads: tuple[tuple[str, Path], ...]
    """(name inside the unit, file on the host): a pack and its index, if the artifact has one."""
    payload_bytes: int
    bytes: int
    bytes_hashed: int
    bytes_copied: int
    answers: tuple[Mapping[str, Any], ...] = ()
    """Recorded at the capture."""
    cold_start_seconds: float | None = None
    cold_start: Mapping[str, Any] | None = None
    """Its phases, see `coldsnap_runtime.cold_start`."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes by kind, as the capture counted them."""
    payload_sha256: str = ""
    """Of the pack that is laid out."""
    payload_fault: ColdSnapError | None = None
    """Why the artifact's payload is not laid out; it is damaged or missing."""
    model_files: Mapping[str, Any] | None = None
    """See `coldsnap_runtime.model_files`."""
    has_weights: bool = False
    """Whether the process image holds the weights, so that nobody has to bring them."""


def lay_out(
    context: Context,
    unit: str,
    store: Path,
    manifest: str,
    policy: Policy,
    payload: Payload = "required",
) -> Image:
    """Verify every file of the artifact, then link them into a fresh folder.

    `payload` says what becomes of a missing or damaged one; see `materialise`.

    Raises:
        ColdSnapError: ``store.*`` naming the damaged or missing file; ``file.disk-full``.
    """
    token = os.urandom(8).hex()
    parent = Path(context.path("images", unit))
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    note = {"store": str(store), "manifest": manifest}
    # After a boot no generation lives, and the folder is swept whatever the note says.
    write_atomic(parent / f"{token}.json", json.dumps(note).encode(), sync="none")
    try:
        done = materialise(
            open_store(store),
            manifest,
            parent / token,
            policy=policy,
            pin=token,
            progress=lambda count: context.progress("verify", count),
            payload=payload,
        )
    except BaseException:
        drop(context, unit, token)
        raise
    return _image(token, done)


def drop(context: Context, unit: str, token: str) -> None:
    """Remove the folder and let the store collect what it was made from."""
    if not _TOKEN.fullmatch(token):
        return
    parent = Path(context.path("images", unit))
    note = parent / f"{token}.json"
    release(parent / token)
    shutil.rmtree(parent / token, ignore_errors=True)
    protect_others(parent.parent)
    with contextlib.suppress(ColdSnapError, OSError, ValueError, KeyError, TypeError):
        store = json.loads(read_regular(note, 1 << 16))["store"]
        unpin(open_store(store), token)
    note.unlink(missing_ok=True)


def tokens(context: Context, unit: str) -> set[str]:
    """Of all folders of the unit, those that a crash left without a note or half removed, too."""
    try:
        names = [entry.name for entry in Path(context.path("images", unit)).iterdir()]
    except OSError:
        return set()
    return {found for name in names if _TOKEN.fullmatch(found := name.partition(".")[0])}


def sweep(context: Context, unit: str, keep: Collection[str]) -> None:
    """Drop all folders of the unit but those named; the caller holds the unit's lock."""
    for token in tokens(context, unit) - set(keep):
        drop(context, unit, token)
    with contextlib.suppress(OSError):
        os.rmdir(context.path("images", unit))  # unless something is left in it


def _image(token: str, done: Materialised) -> Image:
    files = done.artifact.manifest.files()
    all_packs = [file for file in files if file.role == PAYLOAD_ROLE]
    packs = [file for file in all_packs if (done.folder / file.path).exists()]
    notes = (done.artifact.descriptor.get("extensions") or {}).get("notes") or {}
    payloads: tuple[tuple[str, Path], ...] = ()
    if packs:
        index = index_path(packs[0].digest)
        if not any(f.role == PAYLOAD_INDEX_ROLE and f.path == index for f in files):
            raise ColdSnapError("image.incomplete", f"the artifact has no {index}")
        payloads = (
            ("payload.pack", done.folder / packs[0].path),
            ("payload.index.json", done.folder / index),
        )
    return Image(
        token=token,
        folder=done.folder,
        payloads=payloads,
        payload_bytes=sum(pack.size for pack in packs),
        bytes=done.bytes,
        bytes_hashed=done.bytes_hashed,
        bytes_copied=done.bytes_copied,
        answers=_answers(done.artifact.descriptor),
        cold_start_seconds=_cold_start(done.artifact.descriptor),
        cold_start=_cold_phases(done.artifact.descriptor),
        sizes=(done.artifact.descriptor.get("extensions") or {}).get("sizes") or {},
        payload_sha256=packs[0].digest if packs else "",
        payload_fault=done.payload_fault,
        model_files=notes.get("model-files"),
        has_weights=not all_packs and _driver(done.artifact.descriptor) == "criu",
    )


def _driver(descriptor: Mapping[str, Any]) -> str:
    return str((descriptor.get("snapshot_driver") or {}).get("id") or "")


def _answers(descriptor: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    found = (descriptor.get("extensions") or {}).get("answers")
    return tuple(item for item in found if isinstance(item, dict)) if found else ()


def _cold_start(descriptor: Mapping[str, Any]) -> float | None:
    found = (descriptor.get("extensions") or {}).get("cold_start_seconds")
    return float(found) if isinstance(found, (int, float)) else None


def _cold_phases(descriptor: Mapping[str, Any]) -> Mapping[str, Any] | None:
    notes = (descriptor.get("extensions") or {}).get("notes") or {}
    found = notes.get("cold-start")
    return found if isinstance(found, dict) else None
