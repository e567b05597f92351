"""The verb ``page-cache``: files of this host into the kernel's page cache, or all out of it.

For measurements: they name the state that they start from instead of finding it. Dropping slows
whatever else reads files on the host for a while, and loses nothing.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from coldsnap.artifact.decode import Record, decode
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.oci.layout import open_store
from coldsnap.artifact.oci.read import find
from coldsnap.artifact.rules import AbsolutePath, Count
from coldsnap_runtime.hydrate.page_cache import cached_share
from coldsnap_runtime.timing import Timing

if TYPE_CHECKING:
    from coldsnap_runtime.context import Context

_DROP = Path("/proc/sys/vm/drop_caches")
_EVERYTHING = "3"
"""Pages, directory entries and inodes."""
_READERS = 4
_MOST_FILES = 100_000


@dataclass(frozen=True)
class PageCacheRequest(Record):
    state: Literal["warm", "dropped"]
    run: str = ""
    store: str = ""
    """With `artifact`: an OCI layout folder."""
    artifact: str = ""
    """Its files are read."""
    folders: Annotated[tuple[AbsolutePath, ...], Count(0, 16)] = ()
    """All files below them are read, too."""


def page_cache(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """``{"bytes": read, "files": n, "timing"}``; both 0 after dropping.

    Raises:
        ColdSnapError: ``cache.not-dropped``, ``store.*``, ``file.*``.
    """
    request = decode(PageCacheRequest, value, what="page-cache", code="request.invalid")
    timing = Timing()
    files: list[Path] = []
    with timing.span(f"page-cache-{request.state}") as span:
        if request.state == "dropped":
            _drop()
        else:
            files = _files(request)
            with ThreadPoolExecutor(_READERS) as readers:
                total = sum(readers.map(_read, files))
            span.note(bytes=total)
    read = 0 if request.state == "dropped" else total
    context.log(f"page cache {request.state}: {len(files)} files, {read} bytes")
    return {"bytes": read, "files": len(files), "timing": timing.to_json()}


def _drop() -> None:
    os.sync()  # what is not written yet could not go
    try:
        _DROP.write_text(_EVERYTHING)
    except OSError as error:
        raise ColdSnapError(
            "cache.not-dropped",
            f"this host does not let its page cache be dropped: {error}",
            remedy="measure on the machine itself rather than in a container, or with the page "
            "cache warm only",
        ) from error


def _files(request: PageCacheRequest) -> list[Path]:
    found: list[Path] = []
    if request.artifact:
        store = open_store(Path(request.store.removeprefix("oci-layout:")))
        artifact = find(store, request.artifact)
        found += [store.blob(layer.digest) for layer in artifact.manifest.files()]
    for folder in request.folders:
        found += sorted(path for path in Path(folder).rglob("*") if path.is_file())
    return found[:_MOST_FILES]


def _read(path: Path) -> int:
    """Bytes of the file, all of them in the page cache afterwards."""
    buffer = bytearray(1 << 20)
    total = 0
    try:
        if cached_share(path) == 1.0:
            return path.stat().st_size
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            while count := file.readinto(buffer):
                total += count
    except OSError as error:
        raise ColdSnapError("file.unreadable", f"{path}: {error}") from error
    return total
