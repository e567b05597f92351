"""Files written as root go back to whom they belong.

That is the owner of the state folder, or the one who called sudo.
"""

from __future__ import annotations

import os
from pathlib import Path

_SEEN_INSIDE = ("tmp", "caches", "coldsnap-unit", "libcoldsnap_guard.so")
"""Parts of a generation that its processes see as theirs."""


def owner_of(state_dir: str | os.PathLike[str]) -> tuple[int, int]:
    """(uid, gid) that what we write below `state_dir` shall have."""
    try:
        status = os.stat(state_dir)
        if status.st_uid != 0:
            return status.st_uid, status.st_gid
    except OSError:
        pass
    try:
        return int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
    except (KeyError, ValueError):
        return 0, 0


def give_back(path: Path, owner: tuple[int, int]) -> None:
    """Hand a file or a folder with all that is in it to `owner`; links are not followed.

    What vanished meanwhile is passed over. Does nothing for root or without the right to.
    """
    if owner[0] == 0 or os.geteuid() != 0:
        return
    _chown(path, owner)
    if path.is_dir() and not path.is_symlink():
        for folder, names, files in os.walk(path):
            for name in (*names, *files):
                _chown(Path(folder) / name, owner)


def give_back_below(path: Path, state_dir: str | os.PathLike[str]) -> None:
    """`give_back` to the owner of `state_dir`, with the folders between it and `path`."""
    owner = owner_of(state_dir)
    give_back(path, owner)
    if owner[0] != 0 and os.geteuid() == 0:
        for folder in path.relative_to(state_dir).parents:
            if folder != Path():
                _chown(Path(state_dir) / folder, owner)


def give_back_unit(unit_dir: Path, state_dir: str | os.PathLike[str]) -> None:
    """What we wrote of a unit: records, logs, folders.

    Not what its engine wrote (its /tmp, its caches): that has the engine's owners while it runs.
    """
    owner = owner_of(state_dir)
    if owner[0] == 0 or os.geteuid() != 0:
        return
    paths = [unit_dir, unit_dir.parent, *unit_dir.glob("*")]
    for generation in unit_dir.glob("[0-9]*"):
        paths += [*generation.glob("*"), *(generation / "work").glob("*")]
        paths.append(generation / "control" / "engine.log")
    for path in paths:
        if path.name not in _SEEN_INSIDE:
            _chown(path, owner)


def _chown(path: Path, owner: tuple[int, int]) -> None:
    try:
        os.chown(path, *owner, follow_symlinks=False)
    except FileNotFoundError:
        return
