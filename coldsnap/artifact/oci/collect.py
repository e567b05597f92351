"""Retention: old generations go, then every blob that no manifest needs.

A collection has the store to itself. It fails closed: a manifest that cannot be read might need
any blob, so nothing is removed then. The index is written before the first blob is removed; a
collection that is cut leaves garbage for the next, never an artifact without its files.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.decode import parse
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import fsync_dir
from coldsnap.artifact.immutable import set_immutable
from coldsnap.artifact.oci.contents import read_blob
from coldsnap.artifact.oci.entries import entries, match, remove
from coldsnap.artifact.oci.layout import read_only
from coldsnap.artifact.oci.media import INDEX_TYPE, MANIFEST_TYPE, MAX_MANIFEST_BYTES
from coldsnap.artifact.oci.pins import pins

if TYPE_CHECKING:
    from pathlib import Path

    from coldsnap.artifact.oci.entries import Entry
    from coldsnap.artifact.oci.layout import Store


@dataclass(frozen=True)
class Collected:
    artifacts: tuple[str, ...]
    """Digests of manifests that left the index."""
    pinned: tuple[str, ...]
    """Digests that were due but are in use."""
    blobs: int
    bytes: int
    """Freed, where no unit has the file open or linked."""
    dry_run: bool

    def to_json(self) -> dict[str, Any]:
        value = dict(vars(self))
        return {**value, "artifacts": list(self.artifacts), "pinned": list(self.pinned)}


def delete(store: Store, ref: str) -> Entry:
    """Take an artifact (all its tags) out of the index; its blobs go with the next collection.

    Raises:
        ColdSnapError: ``store.no-such-artifact``, ``store.ambiguous``, ``store.read-only``.
    """
    with store.shared(), store.index_locked():
        index = store.read_index()
        entry = match(entries(index), ref)
        try:
            store.write_index(remove(index, entry.manifest))
        except ColdSnapError as error:
            raise (read_only(store.root) if error.code == "file.read-only" else error) from None
    return entry


def collect(
    store: Store,
    keep: int | None = None,
    *,
    dry_run: bool = False,
    patience: float | None = None,
) -> Collected:
    """Keep the newest `keep` artifacts of each name (None: all), then sweep.

    Who uses the store is waited for `patience` seconds (None: as long as ever).

    Raises:
        ColdSnapError: ``store.keep-invalid``, ``store.pin-invalid``, ``store.blob-missing``,
            ``store.blob-differs``, ``store.manifest-invalid``, ``store.read-only``,
            ``store.busy``.
    """
    if keep is not None and keep < 1:
        raise ColdSnapError("store.keep-invalid", f"keep must be at least 1, is {keep}")
    with store.alone(patience):
        index = store.read_index()
        held = {item.manifest for item in pins(store)}
        due = _due(entries(index), keep)
        for manifest in due - held:
            index = remove(index, manifest)
        needed = _reachable(store, index, held)
        garbage = [path for path in _blobs(store) if path.name not in needed]
        size = sum(path.lstat().st_size for path in garbage)
        if not dry_run:
            if due - held:
                store.write_index(index)
            _sweep(store, garbage, needed)
    return Collected(
        tuple(sorted(due - held)), tuple(sorted(due & held)), len(garbage), size, dry_run
    )


def _due(found: list[Entry], keep: int | None) -> set[str]:
    if keep is None:
        return set()
    generations: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for entry in found:
        generations.setdefault((entry.name, entry.units), []).append(entry.manifest)
    return {manifest for group in generations.values() for manifest in group[:-keep]}


def _blobs(store: Store) -> list[Any]:
    folder = store.root / "blobs" / "sha256"
    return sorted(folder.iterdir()) if folder.exists() else []


def _reachable(store: Store, index: dict[str, Any], held: set[str]) -> set[str]:
    """Hex names of all blobs that the index or a pin needs, manifests of others included."""
    needed: set[str] = set()
    todo = [(item.get("digest"), item.get("mediaType")) for item in index["manifests"]]
    # A pin can outlive its blobs (somebody removed them by hand); there is nothing to keep then.
    todo += [(digest, MANIFEST_TYPE) for digest in held if store.blob(digest).exists()]
    while todo:
        digest, kind = todo.pop()
        if not isinstance(digest, str) or not digest.startswith("sha256:"):
            continue
        name = digest.removeprefix("sha256:")
        if name in needed:
            continue
        needed.add(name)
        if kind in (MANIFEST_TYPE, INDEX_TYPE):
            todo += _children(store, digest)
    return needed


def _children(store: Store, digest: str) -> list[tuple[Any, Any]]:
    what = f"manifest {digest}"
    data = read_blob(store, digest, MAX_MANIFEST_BYTES, what)
    value = parse(data, limit=MAX_MANIFEST_BYTES, what=what, code="store.manifest-invalid")
    if not isinstance(value, dict):
        raise ColdSnapError("store.manifest-invalid", f"{what} is not an object")
    found: list[Any] = [value.get("config"), value.get("subject")]
    for key in ("layers", "manifests", "blobs"):
        items = value.get(key)
        found += items if isinstance(items, list) else []
    return [(item.get("digest"), item.get("mediaType")) for item in found if isinstance(item, dict)]


def _remove(blob: Path) -> None:
    """A blob; one that processes mapped may have stayed immutable after a crash."""
    try:
        blob.unlink()
    except PermissionError:
        if set_immutable(blob, immutable=False):
            raise
        blob.unlink()


def _sweep(store: Store, garbage: list[Any], needed: set[str]) -> None:
    try:
        for path in garbage:
            _remove(path)
        if garbage:
            fsync_dir(store.root / "blobs" / "sha256")
        for notes in ("records", "quarantine"):
            for note in (store.root / notes).glob("*.json"):
                if note.stem not in needed:
                    note.unlink()
        # We are alone: whatever is on its way in belongs to a process that died.
        for path in store.staging.glob("*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for folder in (store.root, store.root / "records", store.pins):
            for path in folder.glob(".*.tmp"):
                path.unlink()
    except OSError as error:
        raise read_only(store.root) from error
