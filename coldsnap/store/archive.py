"""Unpacking an archive that this program has made, as a runtime pack or a part of it.

Python has extraction filters since 3.11.4; Debian 12 ships 3.11.2. What an archive may hold is
therefore checked here, with every Python: regular files at places inside the folder.
"""

from __future__ import annotations

import os
import tarfile
from pathlib import PurePosixPath


def unpack(
    archive: str | os.PathLike[str], folder: str | os.PathLike[str], under: str = ""
) -> None:
    """Write the archive's files whose names begin with ``under`` into a folder.

    Raises:
        tarfile.TarError: no tar file, a damaged one, or one with something else in it than
            regular files and folders at places inside the folder; nothing is written then.
        OSError: it cannot be read or written.
    """
    with tarfile.open(archive, "r:") as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", _unfiltered)
        members = [member for member in tar.getmembers() if member.name.startswith(under)]
        for member in members:
            _check(member)
        tar.extractall(folder, members)  # noqa: S202 - each was checked above


def _check(member: tarfile.TarInfo) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or not (member.isreg() or member.isdir()):
        raise tarfile.ReadError(f"{member.name!r} is not a file inside the archive's own folder")


def _unfiltered(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
    del path
    return member
