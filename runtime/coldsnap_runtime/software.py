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

_PACKAGE = re.compile(r"^(/.*/(?:site|dist)-packages)/([A-Za-z0-9_.-]+)")
_INFO = re.compile(r"^([A-Za-z0-9_.]+)-([^-/]+)\.dist-info$")
_MOST_FOLDERS, _MOST_PACKAGES = 16, 256


def package_versions(root: Path, paths: Iterable[str]) -> dict[str, str]:
    """Distribution name -> version, for packages of which one of `paths` is a file.

    Args:
        root: folder that is ``/`` for the unit.
        paths: absolute, as the unit sees them.
    """
    used: dict[str, set[str]] = {}
    for path in paths:
        if found := _PACKAGE.match(path):
            used.setdefault(found[1], set()).add(_plain(found[2]))
    versions: dict[str, str] = {}
    for folder, names in sorted(used.items())[:_MOST_FOLDERS]:
        try:
            entries = sorted(os.listdir(root / folder.lstrip("/")))
        except OSError:
            continue
        infos = [found for entry in entries if (found := _INFO.match(entry))]
        named = {_plain(found[1]): found for found in infos}
        used_infos = [named[name] for name in sorted(names & named.keys())]
        used_infos += _by_content(root / folder.lstrip("/"), infos, names - named.keys())
        for found in used_infos[:_MOST_PACKAGES]:
            versions[found[1].lower().replace("_", "-")] = found[2]
    return versions


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
