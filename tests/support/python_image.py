"""A container image of this machine's own Python, made without any registry."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

TAG = "coldsnap/test-python:1"
_SKIPPED = {"site-packages", "test", "tests", "idlelib", "tkinter", "__pycache__", "ensurepip"}


def make_image(folder: Path) -> str:
    """Import the image; returns its tag."""
    archive = folder / "python.tar"
    python = Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    with tarfile.open(archive, "w") as tar:
        tar.add(python, arcname="usr/bin/python3")
        for path in sorted(_shared_libraries(python, library)):
            tar.add(Path(path).resolve(), arcname=path.lstrip("/"))
        tar.add(library, arcname=str(library).lstrip("/"), filter=_wanted)
        for name in ("proc", "sys", "dev", "tmp", "root", "run", "etc"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
    home = str(library.parent.parent)
    subprocess.run(
        ["docker", "import", "--change", f"ENV PYTHONHOME={home}", str(archive), TAG],
        check=True,
        capture_output=True,
    )
    archive.unlink()
    return TAG


def _wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if _SKIPPED & set(Path(entry.name).parts) else entry


def _shared_libraries(python: Path, library: Path) -> set[str]:
    found: set[str] = set()
    for binary in (python, *library.glob("lib-dynload/*.so")):
        done = subprocess.run(
            ["ldd", os.fspath(binary)], capture_output=True, text=True, check=False
        )
        found |= set(re.findall(r"(/\S+\.so\S*)", done.stdout))
    return found
