"""Files of an image that was laid out, hashed against the artifact's manifest."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import sha256_file
from coldsnap.artifact.oci.contents import load_contents
from coldsnap.artifact.oci.layout import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from coldsnap.artifact.oci.media import Layer

_PAGES = "images/pages-"
_FOLDERS = ("images/", "ext/", "mmap/", "files/", "bin/", "capture.json")
_MOST_THREADS = 8


def hash_image(store: Path, manifest: str, folder: Path, *, pages: bool) -> int:
    """Hash the page files of an image, or all others of it; the bytes that were read.

    Raises:
        ColdSnapError: ``store.blob-differs``, ``store.blob-missing`` naming the file.
    """
    layers = [
        layer
        for layer in load_contents(open_store(store), manifest).manifest.files()
        if layer.path.startswith(_FOLDERS) and layer.path.startswith(_PAGES) == pages
    ]
    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        return sum(pool.map(lambda layer: _hashed(folder, layer), layers))


def _hashed(folder: Path, layer: Layer) -> int:
    path = folder / layer.path
    try:
        found = sha256_file(path)
    except OSError as error:
        raise ColdSnapError(
            "store.blob-missing", f"{layer.path} cannot be read: {error.strerror}"
        ) from error
    if found != layer.digest:
        raise ColdSnapError(
            "store.blob-differs",
            f"{layer.path} is damaged",
            details=(f"expected {layer.digest}", f"found {found}"),
            remedy="copy the artifact here again from where it is whole, or capture again",
        )
    return layer.size
