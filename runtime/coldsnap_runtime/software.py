"""Which versions of Python packages with native code a unit runs, without asking it.

Seen from what its processes have mapped: a shared object below ``.../site-packages/torch/`` has a
folder ``torch-2.11.0.dist-info`` beside it. Nothing is executed.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_INFO = re.compile(r"^([A-Za-z0-9_.]+)-([^-/]+)\.dist-info$")
_MOST_FOLDERS, _MOST_PACKAGES = 256, 256


def package_versions(root: Path, paths: Iterable[str]) -> dict[str, str]:
    """Distribution name -> version, for packages of which one of `paths` is a file.

    Args:
        root: folder that is ``/`` for the unit.
        paths: absolute, as the unit sees them.
    """
    versions: dict[str, str] = {}
    for folder, names in _package_folders(root, paths).items():
        infos = _distributions(root, folder)
        named = {_plain(found[1]): found for found in infos}
        used = [named[name] for name in sorted(names & named.keys())]
        used += _by_content(root / folder.lstrip("/"), infos, names - named.keys())
        for found in used[:_MOST_PACKAGES]:
            versions[found[1].lower().replace("_", "-")] = found[2]
    return versions


def _package_folders(root: Path, paths: Iterable[str]) -> dict[str, set[str]]:
    """Folder that distributions are installed in -> names in it that lead to one of `paths`."""
    below: dict[str, set[str]] = {}
    for path in paths:
        words = path.strip("/").split("/")
        for number in range(1, len(words)):
            below.setdefault("/" + "/".join(words[:number]), set()).add(_plain(words[number]))
    folders = sorted(below, key=lambda folder: (folder.count("/"), folder))[:_MOST_FOLDERS]
    return {folder: below[folder] for folder in folders if _distributions(root, folder)}


def _distributions(root: Path, folder: str) -> list[re.Match[str]]:
    try:
        entries = sorted(os.listdir(root / folder.lstrip("/")))
    except OSError:
        return []
    return [found for entry in entries if (found := _INFO.match(entry))]


def _by_content(folder: Path, infos: list[re.Match[str]], names: set[str]) -> list[re.Match[str]]:
    """Distributions that bring one of the packages under a name of their own."""
    found = []
    for info in infos if names else ():
        try:
            listed = (folder / info[0] / "top_level.txt").read_text(encoding="utf-8")
        except (OSError, ValueError):
            continue
        if names & {_plain(line) for line in listed.split()}:
            found.append(info)
    return found


def _plain(name: str) -> str:
    """One spelling of a package's folder, its native module and its distribution."""
    return name.partition(".")[0].lower().replace("-", "_")
