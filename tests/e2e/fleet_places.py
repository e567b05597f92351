"""Hosts for the tests of the fleet, and what is asked of every kind of them."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waiting import wait_for

from coldsnap.fleet import InventoryFleet
from coldsnap.sdk.host import FactRequest, Host, OperationRequest, OperationResult

ROOT = Path(__file__).parents[2]
DRIVER = ROOT / "tests/runtime/driver.py"

sys.path.insert(0, str(ROOT / "tests/fakes"))  # the child gets our import path


def fact(name: str, **args: Any) -> FactRequest:
    return FactRequest(f"fleet_pack:{name}", args)


def shell(host: Host, command: str, **options: Any) -> OperationResult:
    return host.perform(OperationRequest("fleet_pack:shell", {"command": command}), **options)


def output(host: Host, command: str) -> list[str]:
    answer: list[str] = host.ask(fact("Output", command=command))
    return answer


def is_running(host: Host, marker: str) -> bool:
    """Whether a process with `marker` in its arguments runs there.

    The look itself has the marker only in pieces, or it would find itself.
    """
    pattern = f"[{marker[0]}]{marker[1:]}"
    return output(host, f"pgrep -f '{pattern}' || true") != []


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def later(seconds: float, action: Callable[[], object]) -> Iterator[None]:
    timer = threading.Timer(seconds, action)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


class Target:
    """A host with the runtime's test driver as its pack."""

    def __init__(self, fleet: InventoryFleet, host: Host, folder: Path) -> None:
        self.fleet = fleet
        self.host = host
        self.folder = folder
        """A folder that exists here and on the host."""
        self.state = folder / "state"
        self.python = folder / "python"
        path = f"{ROOT / 'runtime'}:{ROOT}"
        self.python.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {sys.executable} "$@"\n')
        self.python.chmod(0o755)
        self.marks = folder / "marks"

    def job(self, name: str, **request: Any) -> OperationRequest:
        args = {
            "verb": "test.work",
            "request": {"marks": str(self.marks), **request},
            "pack": str(DRIVER),
            "python": str(self.python),
            "state_dir": str(self.state),
            "job": name,
        }
        return OperationRequest("fleet_pack:verb", args, name)

    def job_pid(self) -> int:
        wait_for(self.marks.exists)
        return int(wait_for(self.marks.read_text).split()[-1])


def ends_at(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def rss_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def run(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, check=True, text=True, capture_output=True, **options)
