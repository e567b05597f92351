"""What CRIU finds out about the kernel, found out once a boot.

CRIU asks the kernel some sixty questions whenever it starts (one of them makes and ends a network
namespace: 60 ms of every dump and restore) unless ``/run/criu.kdat`` has the answers. It keeps that
file on a tmpfs only, and where /run is none (virtual machines, containers) it never does. There we
let it write the file in a mount namespace of its own, and units see the file. Another CRIU on such
a host, which cannot keep its own, removes the name and so the mount: the unit's CRIU asks then.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import write_atomic
from coldsnap_runtime.ownership import give_back, owner_of
from coldsnap_runtime.timing import boot_id
from coldsnap_runtime.unit_init import UnitMount

_KERNEL_FILE: Final = "/run/criu.kdat"
_SECONDS: Final = 30.0
_MOST_BYTES: Final = 1 << 16


def kernel_mounts(state_dir: Path, criu: Path) -> tuple[UnitMount, ...]:
    """The mount by which CRIU inside a unit knows the kernel; none where it needs no help.

    Args:
        state_dir: of the runtime; the file is kept there.
        criu: the command, as the host sees it.
    """
    if _is_tmpfs("/run") or criu.resolve().is_relative_to("/run"):
        return ()
    with contextlib.suppress(OSError, ColdSnapError, subprocess.SubprocessError):
        path = _place(state_dir, criu)
        if path.is_file() or _make(path, criu):
            return (UnitMount("bind-read-only", os.fspath(path), _KERNEL_FILE),)
    return ()


def _place(state_dir: Path, criu: Path) -> Path:
    """Of this boot and this very CRIU."""
    binary = criu.resolve().parent / "criu.bin"
    found = (binary if binary.exists() else criu).stat()
    identity = f"{criu.resolve()} {found.st_ino} {found.st_size} {found.st_mtime_ns}"
    boot, program = (hashlib.sha256(t.encode()).hexdigest()[:16] for t in (boot_id(), identity))
    return state_dir / "criu-kernel" / f"{boot}-{program}.kdat"


def _make(path: Path, criu: Path) -> bool:
    helper = Path(__file__).with_name("criu_kernel_probe.py")
    argv = [sys.executable, "-I", "-S", os.fspath(helper), os.fspath(criu)]
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode or not 0 < len(done.stdout) <= _MOST_BYTES:
        return False
    path.parent.mkdir(mode=0o700, exist_ok=True)
    for old in path.parent.glob("*.kdat"):
        if old.name.partition("-")[0] != path.name.partition("-")[0]:
            old.unlink(missing_ok=True)  # of an earlier boot
    write_atomic(path, done.stdout, 0o400, sync="none")
    give_back(path.parent, owner_of(path.parent.parent))
    return True


def _is_tmpfs(folder: str) -> bool:
    kind = ""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            fields, _, more = line.partition(" - ")
            if fields.split()[4] == folder:
                kind = more.split()[0]
    return kind == "tmpfs"
