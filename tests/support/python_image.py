"""A container image of this machine's own Python, made without any registry."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Sequence
from pathlib import Path

TAG = "coldsnap/test-python:1"
_SKIPPED = {"site-packages", "test", "tests", "idlelib", "tkinter", "__pycache__", "ensurepip"}


def make_image(folder: Path) -> str:
    """Import the image; returns its tag."""
    archive, home = make_layer(folder)
    subprocess.run(
        ["docker", "import", "--change", f"ENV PYTHONHOME={home}", str(archive), TAG],
        check=True,
        capture_output=True,
    )
    archive.unlink()
    return TAG


def make_layer(folder: Path, packages: Sequence[Path] = ()) -> tuple[Path, str]:
    """All files of the image as an archive, and PYTHONHOME in it.

    With the libraries of the system that `packages`, which are mounted, need.
    """
    archive = folder / "python.tar"
    python = Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    with tarfile.open(archive, "w") as tar:
        tar.add(python, arcname="usr/bin/python3")
        binaries = [python, *library.glob("lib-dynload/*.so")]
        binaries += [path for package in packages for path in package.rglob("*.so")]
        found = {path for path in _shared_libraries(binaries) if "site-packages" not in path}
        for path in sorted(found):
            tar.add(Path(path).resolve(), arcname=path.lstrip("/"))
        tar.add(library, arcname=str(library).lstrip("/"), filter=_wanted)
        for name in ("proc", "sys", "dev", "tmp", "root", "run", "etc"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
    return archive, str(library.parent.parent)


def _wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if _SKIPPED & set(Path(entry.name).parts) else entry


def _shared_libraries(binaries: Sequence[Path]) -> set[str]:
    done = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False)
    return set(re.findall(r"(/\S+\.so\S*) \(", done.stdout))
