"""The runtime pack: what is staged on a target, as one content-addressed tree in one tar file.

::

    __main__.py  coldsnap_runtime/  coldsnap/artifact/     run by ``python3 PACK VERB``
    inside/                                                the engine's PYTHONPATH
    criu/  pycriu/  vendor/                                CRIU, its RPC messages, protobuf
    bin/                                                   native programs
    pack.json                                              every file with its digest

It is built on the user's host, the same bytes give the same digest and the same tar. A build
whose sources have not changed since the last one costs a stat per file.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from coldsnap.artifact import canonical
from coldsnap.artifact.decode import parse
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import file_error, fsync_dir, sha256_file, write_atomic
from coldsnap.artifact.tree import (
    LISTING,
    MAX_LISTING_BYTES,
    Listing,
    TreeFile,
    decode_listing,
    verify_tree,
)
from coldsnap.sdk.step import RuntimeRef
from coldsnap.store.archive import unpack
from coldsnap.store.criu import find_criu
from coldsnap.store.runtime_sources import Source, collect_sources

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["build", "find_criu", "show", "verify"]

KEPT = 4
"""Archives kept in the cache, the newest."""
KEPT_SECONDS = 3600.0
"""None that was used this lately is dropped."""


def build(cache: str | os.PathLike[str] | None = None) -> RuntimeRef:
    """The runtime pack of this installation; built if its sources changed.

    Args:
        cache: folder for the archive; default the user's cache folder.

    Raises:
        ColdSnapError: ``runtime.no-native``, ``runtime.no-source``, ``criu.*`` (see
            `find_criu`), ``file.disk-full``.
    """
    folder = Path(cache) if cache else platformdirs.user_cache_path("coldsnap") / "runtime"
    # Not in the cache: one that cannot be written is still good for what was built before.
    with _scratch() as scratch:
        sources, facts = collect_sources(Path(scratch))
        remembered = folder / f"{_fingerprint(sources, facts)}.json"
        known = _recall(remembered)
        if known is not None:
            return known
        listing = Listing(tuple(_measure(source) for source in sources), facts)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            ref = _archive(folder, sources, listing)
        except OSError as error:
            raise _unwritable(error, folder) from error
    write_atomic(remembered, json.dumps(asdict(ref)).encode())
    _forget(folder)
    return ref


def _scratch() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="coldsnap-build-")
    except OSError as error:
        told = file_error(error, tempfile.tempdir or "a temporary folder")
        told.remedy = "free space there, or set TMPDIR to a folder that can be written"
        raise told from error


def _unwritable(error: OSError, folder: Path) -> ColdSnapError:
    told = file_error(error, folder)
    told.remedy = "free space there, or set XDG_CACHE_HOME to a folder that can be written"
    return told


def show(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a pack holds: digest, bytes, facts (versions, origins) and its files.

    Args:
        path: archive, or folder of an unpacked pack.
    """
    listing = _listing(Path(path))
    return {
        "digest": listing.digest,
        "bytes": sum(file.bytes for file in listing.files),
        "facts": dict(listing.facts),
        "files": [file.to_json() for file in listing.files],
    }


def verify(path: str | os.PathLike[str], expect: str | None = None) -> dict[str, Any]:
    """Hash every file of an archive or an unpacked pack.

    Args:
        path: archive, or folder.
        expect: digest wanted.

    Raises:
        ColdSnapError: ``pack.differs``, ``pack.wrong``, ``pack.listing-invalid``,
            ``runtime.archive-invalid``.
    """
    place = Path(path)
    if place.is_dir():
        return verify_tree(place, expect).to_json()
    with tempfile.TemporaryDirectory(prefix="coldsnap-") as scratch:
        try:
            unpack(place, scratch)
        except (tarfile.TarError, OSError, EOFError) as error:
            message = f"{place} is not a runtime pack archive: {error}"
            raise ColdSnapError("runtime.archive-invalid", message) from error
        return verify_tree(scratch, expect).to_json()


def _measure(source: Source) -> TreeFile:
    if isinstance(source.content, bytes):
        digest = "sha256:" + hashlib.sha256(source.content).hexdigest()
        return TreeFile(source.path, len(source.content), digest, source.executable)
    size = source.content.stat().st_size
    return TreeFile(source.path, size, sha256_file(source.content), source.executable)


def _fingerprint(sources: Sequence[Source], facts: dict[str, str]) -> str:
    """Changes when any source does; far cheaper than the digest."""
    marks: list[Any] = [1, facts]
    for source in sources:
        if isinstance(source.content, bytes):
            mark: list[Any] = [hashlib.sha256(source.content).hexdigest()]
        else:
            stat = source.content.stat()
            mark = [str(source.content), stat.st_size, stat.st_mtime_ns, stat.st_ino]
        marks.append([source.path, source.executable, *mark])
    return canonical.digest(marks).removeprefix("sha256:")[:32]


def _recall(remembered: Path, *, touch: bool = True) -> RuntimeRef | None:
    try:
        ref = RuntimeRef(**json.loads(remembered.read_text(encoding="utf-8")))
        if Path(ref.archive).stat().st_size != ref.archive_bytes:
            return None
    except (OSError, ValueError, TypeError):
        return None
    if touch:
        with suppress(OSError):  # a cache that cannot be written is still good to read
            os.utime(remembered)
    return ref


def _archive(folder: Path, sources: Sequence[Source], listing: Listing) -> RuntimeRef:
    """Write the tar: sorted, no times, no owners, so that equal trees give equal bytes."""
    target = folder / f"{listing.digest.removeprefix('sha256:')}.tar"
    handle, name = tempfile.mkstemp(prefix=".tar-", dir=folder)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
                content = canonical.dumps(listing.to_json()).encode("ascii")
                for source in (Source(LISTING, content), *sources):
                    _add(archive, source)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_dir(folder)
    return RuntimeRef(listing.digest, os.fspath(target), sha256_file(target), target.stat().st_size)


def _add(archive: tarfile.TarFile, source: Source) -> None:
    data = source.content if isinstance(source.content, bytes) else source.content.read_bytes()
    member = tarfile.TarInfo(source.path)
    member.size = len(data)
    member.mode = 0o755 if source.executable else 0o644
    archive.addfile(member, io.BytesIO(data))


def _listing(path: Path) -> Listing:
    if path.is_dir():
        data = (path / LISTING).read_bytes()
    else:
        try:
            with tarfile.open(path, "r:") as archive:
                member = archive.extractfile(LISTING)
                data = member.read(MAX_LISTING_BYTES + 1) if member else b""
        except (tarfile.TarError, OSError, KeyError) as error:
            message = f"{path} is not a runtime pack archive: {error}"
            raise ColdSnapError("runtime.archive-invalid", message) from error
    value = parse(data, limit=MAX_LISTING_BYTES, what=str(path), code="pack.listing-invalid")
    return decode_listing(value, str(path))


def _forget(folder: Path) -> None:
    """Drop old builds, but none that a run which is still going may be about to upload."""
    fresh = time.time() - KEPT_SECONDS
    remembered = sorted(folder.glob("*.json"), key=_age)
    stay = [path for n, path in enumerate(remembered) if n < KEPT or -_age(path) > fresh]
    kept = {ref.archive for path in stay if (ref := _recall(path, touch=False)) is not None}
    for path in set(remembered) - set(stay):
        path.unlink(missing_ok=True)
    for path in folder.glob("*.tar"):
        if os.fspath(path) not in kept and -_age(path) < fresh:
            path.unlink(missing_ok=True)


def _age(path: Path) -> float:
    """Sorts the newest first; one that another process has just dropped is the oldest."""
    try:
        return -path.stat().st_mtime
    except OSError:
        return 0.0
