"""An artifact as a folder of files, without copying: every file a hard link to its blob."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import file_error
from coldsnap.artifact.immutable import is_immutable, set_immutable
from coldsnap.artifact.oci.contents import Contents, load_contents
from coldsnap.artifact.oci.pins import pin as set_pin
from coldsnap.artifact.oci.quarantine import condemn, reason_against
from coldsnap.artifact.oci.verify import check_files
from coldsnap.artifact.pack_index import PAYLOAD_REMEDY
from coldsnap.artifact.rules import RELATIVE_PATH
from coldsnap.artifact.weights import PAYLOAD_INDEX_ROLE, PAYLOAD_ROLE

if TYPE_CHECKING:
    from coldsnap.artifact.oci.layout import Store
    from coldsnap.artifact.oci.media import Layer
    from coldsnap.artifact.validation import Policy


Payload = Literal["required", "optional", "none"]
_PAYLOAD_ROLES = (PAYLOAD_ROLE, PAYLOAD_INDEX_ROLE)


@dataclass(frozen=True)
class Materialised:
    folder: Path
    artifact: Contents
    bytes: int
    bytes_copied: int
    """Of files that could not be linked: `folder` is on another file system."""
    bytes_hashed: int
    payload_fault: ColdSnapError | None = None
    """Why the payload is not in `folder` though the artifact has one; it must not be used."""


def materialise(
    store: Store,
    manifest: str,
    folder: str | os.PathLike[str],
    *,
    policy: Policy = "record",
    pin: str | None = None,
    progress: Callable[[int], None] | None = None,
    payload: Payload = "required",
) -> Materialised:
    """Verify an artifact, then lay its files out as the capture had them.

    The folder appears complete or not at all; one that is there is replaced. Its files are the
    store's own bytes: read-only (0400), never to be written to or chmodded.

    Args:
        store: where.
        manifest: digest of the manifest.
        folder: to make; its parent must exist.
        policy: of the verification before any link is made.
        pin: name (of a unit's generation) under which to pin the artifact in the same breath,
            so that no collection removes it.
        progress: gets the bytes verified so far.
        payload: a missing or damaged payload is ``required``: an error; ``optional``: left out,
            with its reason in the result; ``none``: not even looked at. A damaged one is
            quarantined. The capsule is always verified whole.

    Raises:
        ColdSnapError: ``store.blob-missing``, ``store.blob-differs``, ``store.path-invalid``,
            ``file.disk-full``, ``store.busy``.
    """
    target = Path(folder)
    temporary = target.with_name(f".{target.name}.{os.urandom(8).hex()}.tmp")
    with store.shared():
        artifact = load_contents(store, manifest)
        layers = artifact.manifest.files()
        check_paths([layer.path for layer in layers])
        capsule = tuple(layer for layer in layers if layer.role not in _PAYLOAD_ROLES)
        verified = check_files(store, artifact, policy, progress, capsule)
        packs = tuple(layer for layer in layers if layer.role in _PAYLOAD_ROLES)
        after = None if progress is None else partial(_shifted, progress, verified.bytes)
        fault, hashed = _check_payload(store, artifact, packs, policy, payload, after)
        layers = capsule if fault is not None or payload == "none" else layers
        try:
            copied = _lay_out(store, layers, temporary)
            _replace(temporary, target)
        except OSError as error:
            raise file_error(error, target) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        if pin is not None:
            _pin(store, pin, manifest)
    return Materialised(
        target,
        artifact,
        bytes=sum(layer.size for layer in {layer.digest: layer for layer in layers}.values()),
        bytes_copied=copied,
        bytes_hashed=verified.bytes_hashed + hashed,
        payload_fault=fault,
    )


def _check_payload(
    store: Store,
    artifact: Contents,
    packs: tuple[Layer, ...],
    policy: Policy,
    payload: Payload,
    progress: Callable[[int], None] | None,
) -> tuple[ColdSnapError | None, int]:
    """(why the payload cannot be used, bytes hashed).

    Raises:
        ColdSnapError: the same, where the payload is required.
    """
    if payload == "none" or not packs:
        return None, 0
    try:
        _refuse_condemned(store, packs, policy)
        return None, check_files(store, artifact, policy, progress, packs).bytes_hashed
    except ColdSnapError as error:
        for layer in packs:
            if error.code == "store.blob-differs" and error.message.startswith(layer.path):
                condemn(store, layer.digest, error.message)
        if payload == "required":
            error.remedy = PAYLOAD_REMEDY
            raise
        return error, 0


def _shifted(progress: Callable[[int], None], before: int, count: int) -> None:
    progress(before + count)


def _refuse_condemned(store: Store, packs: tuple[Layer, ...], policy: Policy) -> None:
    """What was found damaged is not hashed again each time; a full verification may clear it."""
    for layer in packs:
        reason = reason_against(store, layer.digest) if policy == "record" else ""
        if reason:
            raise ColdSnapError(
                "store.blob-quarantined",
                f"{layer.path} was found damaged before in store {store.root}",
                details=(reason,),
                remedy=PAYLOAD_REMEDY,
            )


def _pin(store: Store, name: str, manifest: str) -> None:
    try:
        set_pin(store, name, manifest)
    except ColdSnapError as error:
        # Nobody collects a store that cannot be written, and the links keep the bytes anyway.
        if error.code not in ("store.read-only", "file.read-only"):
            raise


def check_paths(paths: list[str]) -> None:
    """Refuse paths that could leave the folder, or that are a file and a folder at once.

    Raises:
        ColdSnapError: ``store.path-invalid``.
    """
    taken = set(paths)
    if len(taken) != len(paths):
        raise ColdSnapError("store.path-invalid", "two files of the artifact have one path")
    for path in paths:
        if not re.fullmatch(RELATIVE_PATH, path) or len(path) > os.pathconf("/", "PC_PATH_MAX"):
            raise ColdSnapError("store.path-invalid", f"{path!r} is not a clean relative path")
        parts = path.split("/")
        for depth in range(1, len(parts)):
            if "/".join(parts[:depth]) in taken:
                message = f"{path!r} lies below a path that is a file"
                raise ColdSnapError("store.path-invalid", message)


def _lay_out(store: Store, layers: tuple[Layer, ...], folder: Path) -> int:
    """Link all into a folder that we alone made, so no link of others can stand in the way."""
    folder.mkdir(mode=0o700)
    made = {""}
    copied = 0
    for layer in layers:
        _make_parents(folder, layer.path.rpartition("/")[0], made)
        copied += _link(store.blob(layer.digest), folder / layer.path, layer.size)
    return copied


def _make_parents(folder: Path, name: str, made: set[str]) -> None:
    if name in made:
        return
    _make_parents(folder, name.rpartition("/")[0], made)
    (folder / name).mkdir(mode=0o700)
    made.add(name)


def _link(blob: Path, place: Path, size: int) -> int:
    try:
        os.link(blob, place, follow_symlinks=False)
    except OSError as error:
        if error.errno == errno.EPERM and is_immutable(blob):
            return _link_immutable(blob, place)
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            raise
        shutil.copyfile(blob, place, follow_symlinks=False)
        place.chmod(0o400)
        return size
    return 0


def _link_immutable(blob: Path, place: Path) -> int:
    """One that processes map: they and the new folder shall have one file, one page cache."""
    set_immutable(blob, immutable=False)
    try:
        os.link(blob, place, follow_symlinks=False)
    finally:
        set_immutable(blob, immutable=True)
    return 0


def _replace(temporary: Path, target: Path) -> None:
    aside: Path | None = None
    if target.exists():
        aside = target.with_name(f".{target.name}.{os.urandom(8).hex()}.old")
        target.rename(aside)
    # Not synced: neither are the links in it, and what uses them does not outlive this machine.
    temporary.rename(target)
    if aside is not None:
        shutil.rmtree(aside, ignore_errors=True)
