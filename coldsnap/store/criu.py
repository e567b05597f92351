"""Finding a CRIU: COLDSNAP_CRIU, else a good system CRIU, else one built from a newer Debian.

CRIU is never shipped with ColdSnap; it is taken on the user's own machine and put into the
runtime pack there, with its own loader and libraries, so that it runs on targets of another age.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.store.criu_bundle import build_bundle, cache_folder, cached_bundle
from coldsnap.store.criu_memory import key_of, remembered
from coldsnap_runtime.probe.criu import probe_criu_dump
from coldsnap_runtime.probe.feature import Options

MINIMUM = (4, 1)
SUITES = ("trixie", "forky")
"""Debian suites whose CRIU was tried: 4.1.1, 4.2.1."""
_SECONDS = 60.0


@dataclass(frozen=True)
class Criu:
    command: Path
    """Runs here: a system binary, or a bundle's wrapper."""
    version: str
    source: str
    """``COLDSNAP_CRIU``, ``system`` or ``debian SUITE``."""
    python: Path | None = None
    """Folder that holds ``pycriu``, if it came with it."""


def find_criu(suite: str | None = None) -> Criu:
    """The CRIU to use; the last resort is downloaded once and kept in the user's cache.

    Args:
        suite: Debian suite of the last resort; default COLDSNAP_CRIU_SUITE, else the first of
            `SUITES` whose CRIU can dump a process with a listening socket on this kernel.

    Raises:
        ColdSnapError: ``criu.unusable`` for a COLDSNAP_CRIU that does not work,
            ``criu.no-apt``, ``criu.no-mirror``, ``criu.download-failed``.
    """
    wishes = {name: os.environ.get(name) for name in ("COLDSNAP_CRIU", "COLDSNAP_CRIU_SUITE")}
    key = key_of(_programs(), {**wishes, "suite": suite})
    found = remembered(cache_folder() / "found.json", key, lambda: _to_json(_find(suite)))
    python = found["python"]
    return Criu(
        command=Path(found["command"]),
        version=str(found["version"]),
        source=str(found["source"]),
        python=Path(python) if python else None,
    )


def _to_json(criu: Criu) -> dict[str, Any]:
    python = os.fspath(criu.python) if criu.python else ""
    command = os.fspath(criu.command)
    return {"command": command, "version": criu.version, "source": criu.source, "python": python}


def _programs() -> list[Path]:
    """Every file that may be the CRIU that is found, or is part of it."""
    commands = [bundle / "criu" for bundle in cache_folder().glob("*-*")]
    if given := os.environ.get("COLDSNAP_CRIU"):
        path = Path(given).absolute()
        commands += [path, path / "criu", Path(shutil.which(given) or given)]
    if system := shutil.which("criu", path=_search_path()):
        commands.append(Path(system))
    return [*commands, *(path.with_name("criu.bin") for path in commands)]


def _search_path() -> str:
    return os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"


def _find(suite: str | None) -> Criu:
    if given := os.environ.get("COLDSNAP_CRIU"):
        return _given(given)
    if suite is None and (system := _system()) is not None:
        return system
    suite = suite or os.environ.get("COLDSNAP_CRIU_SUITE")
    if suite:
        return _bundled(suite)
    for name in SUITES:
        found = _bundled(name)
        # One that passes its own check can still fail at sockets on a newer kernel.
        if not check_criu(found.command) and not trial_dump(found.command):
            break
    return found


def _bundled(suite: str) -> Criu:
    bundle = cached_bundle(suite) or build_bundle(suite)
    return Criu(bundle / "criu", version_of(bundle / "criu"), f"debian {suite}", bundle / "python")


def trial_dump(command: Path) -> str:
    """Why this CRIU cannot dump a process that listens on a socket; empty if it can."""
    if os.geteuid() != 0:
        return ""
    with tempfile.TemporaryDirectory() as scratch:
        options = Options(criu=os.fspath(command))
        options.scratch = scratch
        return str(probe_criu_dump(options)["reason"])


def version_of(command: Path) -> str:
    """Dotted version of a CRIU command.

    Raises:
        ColdSnapError: ``criu.unusable``.
    """
    try:
        done = subprocess.run(
            [os.fspath(command), "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = error.strerror if isinstance(error, OSError) else "it does not answer"
        raise ColdSnapError("criu.unusable", f"{command} cannot be started: {why}") from error
    found = re.search(r"Version:\s*(\d{1,6}(?:\.\d{1,6})+)", done.stdout)
    if found is None:
        reason = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
        raise ColdSnapError(
            "criu.unusable", f"{command} does not tell its version", details=(reason[0][:200],)
        )
    return found[1]


def check_criu(command: Path) -> str:
    """Why this CRIU cannot work on this kernel; empty if it can, or if only root could tell."""
    if os.geteuid() != 0:
        return ""
    try:
        done = subprocess.run(
            [os.fspath(command), "check"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    lines = (done.stdout + done.stderr).splitlines()
    errors = [line for line in lines if "Error" in line]
    return (errors or lines or [f"exit status {done.returncode}"])[0].strip()


def _given(value: str) -> Criu:
    remedy = "name another CRIU, or unset COLDSNAP_CRIU to have one found or built"
    command = _command(value, remedy)
    try:
        version = version_of(command)
    except ColdSnapError as error:
        message = f"COLDSNAP_CRIU={value} is no CRIU: {error.message}"
        raise ColdSnapError(error.code, message, details=error.details, remedy=remedy) from error
    if _numbers(version) < MINIMUM:
        message = f"COLDSNAP_CRIU={value} is CRIU {version}; 4.1 or newer is needed"
        raise ColdSnapError("criu.unusable", message, remedy=remedy)
    if reason := check_criu(command):
        message = f"COLDSNAP_CRIU={value} fails its own check on this kernel"
        raise ColdSnapError("criu.unusable", message, details=(reason,), remedy=remedy)
    beside = command.resolve().parent / "python"
    return Criu(command, version, "COLDSNAP_CRIU", beside if (beside / "pycriu").is_dir() else None)


def _command(value: str, remedy: str) -> Path:
    """The program that COLDSNAP_CRIU means: a file, the ``criu`` of a folder, a name on PATH."""
    path = Path(value).absolute()
    if path.is_dir():
        path = path / "criu"
    if not path.is_file():
        found = shutil.which(value) if "/" not in value else None
        if found is None:
            message = f"COLDSNAP_CRIU={value} is not there: no file {path}"
            raise ColdSnapError("criu.unusable", message, remedy=remedy)
        path = Path(found)
    return path


def _system() -> Criu | None:
    """The installed CRIU if it is new enough and passes its check."""
    found = shutil.which("criu", path=_search_path())
    if found is None:
        return None
    try:
        version = version_of(Path(found))
    except ColdSnapError:
        return None
    if _numbers(version) < MINIMUM or check_criu(Path(found)) or trial_dump(Path(found)):
        return None
    return Criu(Path(found), version, "system")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
