"""The host's numbers of processes inside a unit."""

from __future__ import annotations

import os
from collections.abc import Iterable


def host_pids(init_pid: int, inside: Iterable[int]) -> dict[int, int]:
    """Number inside -> number on the host; those that have ended are left out."""
    wanted = set(inside)
    space = os.readlink(f"/proc/{init_pid}/ns/pid")
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            if os.readlink(f"/proc/{name}/ns/pid") != space:
                continue
            number = _number_inside(name)
        except (OSError, ValueError, IndexError):
            continue
        if number in wanted:
            found[number] = int(name)
    return found


def is_process(pid: int) -> bool:
    """Whether `pid` is a process rather than one of another's threads, which /proc shows too."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            return any(line.split() == ["Tgid:", str(pid)] for line in file)
    except OSError:
        return False


def _number_inside(name: str) -> int:
    with open(f"/proc/{name}/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    raise ValueError(name)
