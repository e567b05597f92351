"""CRIU: its version, its own check, a trial dump."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import socket
import time
from typing import TYPE_CHECKING

from coldsnap_runtime.probe.feature import (
    FAILED,
    SBIN,
    UNQUALIFIED,
    UNSUPPORTED,
    Options,
    first_line,
    lacking,
    passed,
    read,
    run,
    version_of,
)

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from coldsnap_runtime.probe.feature import Feature

MINIMUM_CRIU = (4, 1)
_CRIU_FOR_SOCKETS = (4, 2)


def probe_criu(options: Options) -> Feature:
    path = criu_path(options)
    if not path:
        system = shutil.which("criu") or ""
        where = options.criu or "PATH"
        return lacking(
            UNQUALIFIED,
            f"there is no CRIU yet ({where})",
            "stage the runtime pack, which brings one: core.stage",
            system=system,
        )
    shown = run([path, "--version"])
    found = re.search(r"Version: (\S+)", shown.stdout)
    version = found.group(1) if found else ""
    evidence = {"path": path, "version": version}
    remedy = "use the runtime pack's CRIU, or set COLDSNAP_CRIU to a newer one"
    if version_of(version) < MINIMUM_CRIU:
        said = version or first_line(shown)
        return lacking(FAILED, f"CRIU {said} is older than 4.1", remedy, **evidence)
    checked = run([path, "check"])
    if checked.returncode == 0:
        return passed(**evidence)
    reason = f"criu check fails: {_first_error(checked)}"
    if "Bad maps format" in reason:  # it reads lines of /proc/self/maps up to 255 characters
        folder = os.path.dirname(path)
        reason = f"criu check fails: its folder has too long a path ({len(folder)} characters)"
        remedy = "set a shorter state_dir: with 70 characters it fits"
    return lacking(FAILED, reason, remedy, exit_status=checked.returncode, **evidence)


def probe_criu_dump(options: Options) -> Feature:
    """Dump a process that listens on a socket: a CRIU can pass its own check and fail at this."""
    path = criu_path(options)
    if not path:
        return lacking(UNQUALIFIED, "there is no CRIU yet", "stage the runtime pack")
    child = _start_listener()
    folder = options.scratch
    try:
        done = run([path, "dump", "-t", str(child), "-D", folder, "-o", "dump.log"])
        text = read(os.path.join(folder, "dump.log")) + done.stderr
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if done.returncode == 0:
        return passed()
    errors = [line for line in text.splitlines() if "Error (" in line and "rlimit" not in line]
    first = re.sub(r"pid:? \d+", "pid", errors[0].strip()) if errors else first_line(done)
    reason = f"a trial dump fails: {first}"
    remedy = "read CRIU's documentation on that error, or try another CRIU (COLDSNAP_CRIU)"
    if _is_old_for_sockets(options):
        remedy = "use CRIU 4.2 or newer: this kernel refuses what older ones ask of TCP sockets"
    return lacking(FAILED, reason, remedy, errors=errors[:5])


def criu_feature(name: str, without: str) -> Callable[[Options], Feature]:
    def probe(options: Options) -> Feature:
        path = criu_path(options)
        if not path:
            return lacking(UNQUALIFIED, "there is no CRIU yet", "stage the runtime pack")
        if run([path, "check", "--feature", name]).returncode == 0:
            return passed()
        return lacking(UNSUPPORTED, f"this kernel does not offer {name}", without)

    return probe


def criu_path(options: Options) -> str:
    """The CRIU to look at; empty if it is not there."""
    if options.criu:
        return options.criu if os.access(options.criu, os.X_OK) else ""
    return os.environ.get("COLDSNAP_CRIU") or shutil.which("criu", path=SBIN) or ""


def _is_old_for_sockets(options: Options) -> bool:
    """Kernels since 6.16 answer SO_PASSCRED on local and netlink sockets only."""
    with socket.socket() as probe_socket:
        try:
            probe_socket.getsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED)
        except OSError:
            found = re.search(r"Version: (\S+)", run([criu_path(options), "--version"]).stdout)
            return found is not None and version_of(found.group(1)) < _CRIU_FOR_SOCKETS
    return False


def _start_listener() -> int:
    """A small process with a listening socket, in a session of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with the probe
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        listener = socket.create_server(("127.0.0.1", 0))
        os.write(writer, b"up")
        keep = listener.fileno()
        os.closerange(3, keep)
        os.closerange(keep + 1, 4096)
        time.sleep(3600)
        os._exit(0)
    os.close(writer)
    os.read(reader, 2)
    os.close(reader)
    return child


def _first_error(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stdout + "\n" + done.stderr).splitlines()
    errors = [line.strip() for line in lines if "Error (" in line]
    return errors[0] if errors else first_line(done)
