"""What restores could leave behind: mounts, namespaces, processes, files, descriptors, pins."""

from __future__ import annotations

import os
from pathlib import Path


def count(state: Path) -> dict[str, int]:
    """All that has to do with the state folder, and our own descriptors."""
    name = os.fspath(state)
    own = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    spaces: set[str] = set()
    processes = 0
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            mounts = Path(f"/proc/{entry}/mountinfo").read_text(encoding="utf-8", errors="replace")
            if name in mounts:
                processes += 1
                spaces |= {
                    os.readlink(f"/proc/{entry}/ns/{kind}") for kind in ("mnt", "pid", "net")
                }
        except OSError:
            continue
    return {
        "mounts": own.count(name),
        "namespaces": len(spaces),
        "processes": processes,
        "files": sum(1 for _ in state.rglob("*")),
        "descriptors": len(os.listdir("/proc/self/fd")),
    }
