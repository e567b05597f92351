"""Every byte of an artifact against its digest, or against the record that it was checked."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.oci.contents import Contents, load_contents
from coldsnap.artifact.oci.quarantine import absolve
from coldsnap.artifact.validation import Policy, is_recorded, validate

if TYPE_CHECKING:
    from coldsnap.artifact.oci.layout import Store
    from coldsnap.artifact.oci.media import Layer

MAX_THREADS = 8
MAX_SHOWN = 20
"""Damaged files that one error names."""

_REASONS = {
    "file.missing": ("blob-missing", "is missing"),
    "file.not-regular": ("blob-differs", "is not a regular file"),
    "payload.size-differs": ("blob-differs", "is cut or has grown"),
    "payload.digest-differs": ("blob-differs", "is damaged"),
}


@dataclass(frozen=True)
class Verified:
    manifest: str
    policy: Policy
    files: int
    bytes: int
    bytes_hashed: int
    """The rest had a valid record."""
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def verify(
    store: Store,
    manifest: str,
    policy: Policy = "full",
    progress: Callable[[int], None] | None = None,
) -> Verified:
    """Check manifest, descriptor and every file.

    Args:
        store: where.
        manifest: digest of the manifest.
        policy: ``record`` believes a stat-bound record of an earlier hash; ``full`` hashes all.
        progress: gets the bytes accepted so far.

    Raises:
        ColdSnapError: ``store.blob-missing``, ``store.blob-differs`` with the file's name;
            further damaged files are in `more`.
    """
    with store.shared():
        return check_files(store, load_contents(store, manifest), policy, progress)


def check_files(
    store: Store,
    artifact: Contents,
    policy: Policy,
    progress: Callable[[int], None] | None = None,
    layers: Iterable[Layer] | None = None,
) -> Verified:
    """As `verify`, under a lock that the caller holds; of `layers` only, if they are given."""
    started = time.monotonic()
    # Equal files are one blob; the largest first, so that no thread ends alone with it.
    chosen = artifact.manifest.files() if layers is None else layers
    ordered = sorted({layer.digest: layer for layer in chosen}.values(), key=lambda x: -x.size)
    counter = _Counter(progress)

    def check(layer: Layer) -> ColdSnapError | int:
        try:
            _hash(store, layer)
        except ColdSnapError as error:
            return error
        absolve(store, layer.digest)
        counter.add(layer.size)
        return layer.size

    pending = []
    for layer in ordered:
        if policy == "record" and _is_recorded(store, layer):
            counter.add(layer.size)
        else:
            pending.append(layer)
    outcomes = _at_once(check, pending)
    errors = [outcome for outcome in outcomes if isinstance(outcome, ColdSnapError)]
    if errors:
        errors.sort(key=lambda error: error.message)
        errors[0].more = tuple(errors[1:MAX_SHOWN])
        raise errors[0]
    return Verified(
        manifest=artifact.digest,
        policy=policy,
        files=len(artifact.manifest.layers) if layers is None else len(ordered),
        bytes=sum(layer.size for layer in ordered),
        bytes_hashed=sum(outcome for outcome in outcomes if isinstance(outcome, int)),
        seconds=time.monotonic() - started,
    )


def _at_once(
    check: Callable[[Layer], ColdSnapError | int], layers: list[Layer]
) -> list[ColdSnapError | int]:
    """Outcomes in the order of `layers`; in threads where there is more than one."""
    threads = min(MAX_THREADS, os.cpu_count() or 1, len(layers))
    if threads <= 1:
        return [check(layer) for layer in layers]
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  (start-up time)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(check, layers))


def _is_recorded(store: Store, layer: Layer) -> bool:
    blob, record = store.blob(layer.digest), store.record(layer.digest)
    return is_recorded(blob, sha256=layer.digest, size=layer.size, record=record)


def _hash(store: Store, layer: Layer) -> None:
    blob, record = store.blob(layer.digest), store.record(layer.digest)
    try:
        validate(blob, sha256=layer.digest, size=layer.size, record=record, policy="full")
    except ColdSnapError as error:
        reason, said = _REASONS.get(error.code, ("blob-differs", "cannot be used"))
        raise ColdSnapError(
            f"store.{reason}",
            f"{layer.path} {said} in store {store.root}",
            details=(error.message, *error.details),
            remedy="capture it again, or copy the file from another store; nothing was restored",
        ) from None


class _Counter:
    """Adds up what several threads did and reports it in one voice."""

    def __init__(self, progress: Callable[[int], None] | None) -> None:
        self._progress = progress
        self._done = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self._done += count
            if self._progress is not None:
                self._progress(self._done)
