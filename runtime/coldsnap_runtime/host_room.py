"""Whether a captured unit has room on this host, asked before anything of a restore is started."""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING

from coldsnap.artifact.errors import ColdSnapError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from coldsnap_runtime.unit_capture import Capture
    from coldsnap_runtime.unit_record import UnitRecord
    from coldsnap_runtime.unit_requests import LaunchSpec, Port

MEMINFO = "COLDSNAP_MEMINFO"
"""Names another file than /proc/meminfo, for tests and containers with a limit."""
_RING = 512 << 20
"""Pinned memory that hydration to a device takes."""
_MARGIN = 128 << 20


def check_memory(capture: Capture, image: Path, *, is_mapped: bool = False) -> None:
    """Host memory for the process image, which holds CUDA's state too, and the pinned ring.

    `is_mapped`: its pages stay in the page cache until they are written to.

    Raises:
        ColdSnapError: ``host.memory-short``.
    """
    pages = sum(path.stat().st_size for path in (image / "images").glob("pages-*.img"))
    shared = sum(record.bytes for record in capture.file_sets if record.name in ("shm", "tmp"))
    ring = _RING if capture.cuda else 0
    needed = (0 if is_mapped else pages) + shared + ring + _MARGIN
    free = available_memory()
    if free is None or free >= needed:
        return
    raise ColdSnapError(
        "host.memory-short",
        f"the host has {free / 2**30:.1f} GiB of memory free, the unit needs {needed / 2**30:.1f}",
        details=(
            f"process image: {pages / 2**30:.1f} GiB",
            f"shared memory and pinned ring: {(shared + ring) / 2**30:.1f} GiB",
            "nothing was started",
        ),
        remedy="stop what holds memory, or restore on a host with more",
    )


def check_shm(capture: Capture, spec: LaunchSpec) -> None:
    """Raises ColdSnapError ``restore.shm-short``."""
    needed = sum(record.bytes for record in capture.file_sets if record.name == "shm")
    if needed > spec.shm:
        raise ColdSnapError(
            "restore.shm-short",
            f"the unit had {needed >> 20} MiB in /dev/shm, and shm allows {spec.shm >> 20}",
            details=("nothing was started",),
            remedy="raise shm: of the unit in the plan, and capture again",
        )


def check_ports(ports: Sequence[Port], generations: Collection[UnitRecord]) -> None:
    """Whether the host's ports can be taken over: they are free, or this unit's own.

    Raises:
        ColdSnapError: ``expose.port-taken``.
    """
    for port in taken_ports(ports, generations):
        raise ColdSnapError(
            "expose.port-taken",
            f"port {port.port} of {port.host} is taken by another program",
            details=("nothing was started",),
            remedy="free the port (ss -ltnp shows who holds it), or set another port in the plan",
        )


def taken_ports(ports: Sequence[Port], generations: Collection[UnitRecord]) -> list[Port]:
    """Those that another program listens on."""
    own = {
        (port.host, port.port)
        for record in generations
        if record.is_live and record.exposed
        for port in record.ports
    }
    return [p for p in ports if (p.host, p.port) not in own and _is_taken(p.host, p.port)]


def available_memory() -> int | None:
    """Bytes that new processes can have without swapping; None where that is not told."""
    try:
        with open(os.environ.get(MEMINFO) or "/proc/meminfo", encoding="ascii") as file:
            rows = [line.split() for line in file if line.startswith("MemAvailable:")]
        return int(rows[0][1]) * 1024
    except (OSError, ValueError, IndexError):
        return None


def _is_taken(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        return error.errno == errno.EADDRINUSE  # what else is wrong, exposing says better
    return False
