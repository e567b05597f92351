"""CRIU of a newer Debian suite in a folder of its own: binary, loader, libraries, pycriu.

Debian's older CRIU cannot run on newer kernels. The packages come from the mirror that apt is
set up with, checked by apt against Debian's signatures; nothing of the system is changed.
Needs Debian (apt-get, dpkg-deb), not root.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import platformdirs

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import file_error
from coldsnap.store.elf import interpreter, needed_libraries

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
APT_SECONDS = 600.0
WRAPPER = """#!/bin/sh
d=$(dirname "$(readlink -f "$0")")
exec "$d/lib/{loader}" --library-path "$d/lib" "$d/criu.bin" "$@"
"""

_REMEDY = "install CRIU 4.1 or newer, or name one: COLDSNAP_CRIU=/path/to/criu"
_SUITE = re.compile(r"[a-z][a-z0-9-]{1,40}")


def cache_folder() -> Path:
    """Where bundles are kept, one folder per suite and version."""
    return platformdirs.user_cache_path("coldsnap") / "criu"


def cached_bundle(suite: str) -> Path | None:
    """The newest bundle of that suite that was built before."""
    found = [p for p in cache_folder().glob(f"{suite}-*") if (p / "criu").is_file()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def build_bundle(suite: str) -> Path:
    """Download and unpack; returns the folder, which appears whole or not at all.

    Raises:
        ColdSnapError: ``criu.no-apt``, ``criu.no-mirror``, ``criu.download-failed``,
            ``criu.suite-invalid``.
    """
    if not _SUITE.fullmatch(suite):
        raise ColdSnapError("criu.suite-invalid", f"{suite!r} is no Debian suite")
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            message = f"no usable CRIU here, and none can be built: {tool} is missing (not Debian)"
            raise ColdSnapError("criu.no-apt", message, remedy=_REMEDY)
    mirror = debian_mirror()
    with _scratch() as name:
        work = Path(name)
        archives = _download(work, mirror, suite)
        for archive in archives:
            _run(["dpkg-deb", "--extract", str(archive), str(work / "root")], {})
        bundle = work / "bundle"
        _assemble(work / "root", bundle)
        version = _package_version(archives)
        return _keep(bundle, cache_folder() / f"{suite}-{version}")


def _scratch() -> tempfile.TemporaryDirectory[str]:
    """In the cache, so that the bundle can be renamed to its place."""
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix=".build-", dir=cache_folder())
    except OSError as error:
        told = file_error(error, cache_folder())
        told.remedy = f"set XDG_CACHE_HOME to a folder that can be written; or {_REMEDY}"
        raise told from error


def _keep(bundle: Path, target: Path) -> Path:
    """Give the bundle its name; one that another process built meanwhile is as good."""
    try:
        bundle.rename(target)
    except OSError:
        if not (target / "criu").is_file():
            raise
    return target


def debian_mirror(etc: Path = Path("/etc/apt")) -> str:
    """Base address of the Debian archive in the apt sources.

    Raises:
        ColdSnapError: ``criu.no-mirror``.
    """
    paths = (etc / "sources.list", *sorted((etc / "sources.list.d").glob("*")))
    texts = (
        path.read_text(encoding="utf-8", errors="replace")
        for path in paths
        if path.suffix in (".list", ".sources") and path.is_file()
    )
    for line in "\n".join(texts).splitlines():
        if line.lstrip().startswith("#"):
            continue
        found = re.search(r"\b(?:https?|mirror\+\w+|file|copy):[^\s\]]*/debian/?(?=\s|$)", line)
        if found is not None:
            return found[0].rstrip("/")
    raise ColdSnapError(
        "criu.no-mirror",
        "no usable CRIU here, and none can be built: the apt sources name no Debian archive",
        remedy=_REMEDY,
    )


def _download(work: Path, mirror: str, suite: str) -> list[Path]:
    for folder in ("lists/partial", "cache/archives/partial", "root"):
        (work / folder).mkdir(parents=True)
    (work / "status").touch()
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    (work / "sources.list").write_text(f"deb {signed}{mirror} {suite} main\n", encoding="utf-8")
    config = {
        "Dir::State::Lists": work / "lists",
        "Dir::State::status": work / "status",
        "Dir::Cache": work / "cache",
        "Dir::Etc::sourcelist": work / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",
        "Acquire::Retries": "2",
        "Acquire::http::Timeout": "20",
        "Acquire::https::Timeout": "20",
        "APT::Update::Error-Mode": "any",
    }
    lines = [f'{key} "{value}";\n' for key, value in config.items()]
    (work / "apt.conf").write_text("".join(lines), encoding="utf-8")
    env = {"APT_CONFIG": str(work / "apt.conf"), "LC_ALL": "C"}
    _run(["apt-get", "-qq", "update"], env)
    packages = ["criu", "python3-pycriu"]
    _run(["apt-get", "-qq", "install", "--download-only", "--yes", *packages], env)
    return sorted((work / "cache" / "archives").glob("*.deb"))


def _run(argv: list[str], env: dict[str, str]) -> None:
    try:
        done = subprocess.run(
            argv,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=APT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _failed(argv, str(error)) from error
    if done.returncode != 0:
        lines = (done.stderr + done.stdout).splitlines()
        first = next((line for line in lines if line.startswith("E:")), "")
        raise _failed(argv, first or (lines or ["no output"])[-1])


def _failed(argv: list[str], reason: str) -> ColdSnapError:
    cause = "the Debian archive cannot be reached, or it has no such suite"
    remedy = f"try again with a network; or {_REMEDY}"
    if os.strerror(errno.ENOSPC) in reason:
        cause = f"no space is left in {cache_folder()}"
        remedy = "free space there, or set XDG_CACHE_HOME to a folder that has some"
    return ColdSnapError(
        "criu.download-failed",
        f"no usable CRIU here, and {' '.join(argv[:3])} failed",
        details=(reason.strip(),),
        cause=cause,
        remedy=remedy,
    )


def _package_version(archives: list[Path]) -> str:
    for path in archives:
        name, version, _ = path.name.split("_")
        if name == "criu":
            return re.sub(r"[^A-Za-z0-9.+~-]", ".", version.replace("%3a", "."))
    raise ColdSnapError("criu.download-failed", "apt brought no package criu", remedy=_REMEDY)


def _assemble(root: Path, bundle: Path) -> None:
    """Take from the unpacked packages what CRIU needs to run anywhere."""
    binary = root / "usr" / "sbin" / "criu"
    bundle_binary(binary, bundle, [p for p in _library_folders(root) if p.is_dir()], root)
    package = root / "usr" / "lib" / "python3" / "dist-packages" / "pycriu"
    shutil.copytree(package, bundle / "python" / "pycriu", ignore=_no_byte_code)
    for name in ("criu", "python3-pycriu"):
        notice = root / "usr" / "share" / "doc" / name / "copyright"
        if notice.exists():
            shutil.copyfile(notice, bundle / f"COPYRIGHT.{name}")


def bundle_binary(binary: Path, bundle: Path, folders: list[Path], root: Path) -> None:
    """`bundle`/criu, criu.bin and lib/ from a dynamically linked binary.

    Args:
        binary: CRIU.
        bundle: folder to make.
        folders: where its libraries are looked for, in order.
        root: what an absolute loader path is relative to.

    Raises:
        ColdSnapError: ``criu.unusable`` for a missing library.
    """
    (bundle / "lib").mkdir(parents=True)
    shutil.copyfile(binary, bundle / "criu.bin")
    (bundle / "criu.bin").chmod(0o755)
    loader = interpreter(binary)
    if loader is None:  # static
        (bundle / "criu.bin").rename(bundle / "criu")
        (bundle / "lib").rmdir()
        return
    name = Path(loader).name
    # Loader and libc must be of one age: beside the libraries first, never the host's by chance.
    places = [*(folder / name for folder in folders), root / loader.lstrip("/")]
    source = next((place for place in places if place.exists()), None)
    if source is None:
        raise ColdSnapError("criu.unusable", f"{binary}: its loader {loader} is missing")
    shutil.copyfile(source, bundle / "lib" / name)
    (bundle / "lib" / name).chmod(0o755)
    for path in needed_libraries(binary, folders):
        if path.name != name:
            shutil.copyfile(path, bundle / "lib" / path.name)
    (bundle / "criu").write_text(WRAPPER.format(loader=name), encoding="ascii")
    (bundle / "criu").chmod(0o755)


def _library_folders(root: Path) -> list[Path]:
    return [*sorted((root / "usr" / "lib").glob("*-linux-gnu*")), root / "usr" / "lib"]


def _no_byte_code(_folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name == "__pycache__" or name.endswith(".pyc")}
