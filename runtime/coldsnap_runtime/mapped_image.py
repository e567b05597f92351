"""Images that processes map: nobody may change them while such a process lives.

The page files are made immutable where the file system can do that; a marker beside the folder
(``images/<unit>/<token>.mapped``) says so, because several folders may link the same file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import write_atomic
from coldsnap.artifact.immutable import is_immutable, set_immutable

if TYPE_CHECKING:
    from pathlib import Path

_PAGES = "images/pages-*.img"
MARKER = ".mapped"


def protect(folder: Path) -> str:
    """Make the page files of an image folder immutable; why that cannot be, else empty."""
    try:
        write_atomic(folder.with_name(folder.name + MARKER), b"", sync="none")
    except (ColdSnapError, OSError) as error:
        return str(error)
    for path in folder.glob(_PAGES):
        reason = set_immutable(path, immutable=True)
        if reason:
            return reason
    return ""


def release(folder: Path) -> None:
    """Before the folder is removed: its files can be unlinked again.

    What other folders map is made immutable again by `protect_others`.
    """
    for path in folder.glob(_PAGES):
        if is_immutable(path):
            set_immutable(path, immutable=False)
    folder.with_name(folder.name + MARKER).unlink(missing_ok=True)


def protect_others(images: Path) -> None:
    """All that is marked below the state's ``images/``, again."""
    for marker in images.glob(f"*/*{MARKER}"):
        folder = marker.with_name(marker.name.removesuffix(MARKER))
        if folder.is_dir():
            protect(folder)
        else:
            marker.unlink(missing_ok=True)
