"""``host.facts.X`` in expressions: a few facts of a host, each asked when an expression wants it.

They are pyinfra's own, so they need nothing staged on the host.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from coldsnap.sdk.host import FactRequest, Host

NAMES = {
    "architecture": "pyinfra.facts.server:Arch",
    "cpus": "pyinfra.facts.hardware:Cpus",
    "distribution": "pyinfra.facts.server:LinuxDistribution",
    "hostname": "pyinfra.facts.server:Hostname",
    "kernel": "pyinfra.facts.server:KernelVersion",
    "memory_mib": "pyinfra.facts.hardware:Memory",
    "os": "pyinfra.facts.server:Os",
    "user": "pyinfra.facts.server:User",
}
"""Name in expressions -> fact."""


class HostFacts(Mapping[str, Any]):
    """Answers are kept: they do not change while a plan is looked at."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._answers: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """Raises: ColdSnapError: ``host.unreachable``, ``host.fact-failed``."""
        with self._lock:
            if name not in self._answers:
                self._answers[name] = self._host.ask(FactRequest(NAMES[name]))
            return self._answers[name]

    def __contains__(self, name: object) -> bool:
        return name in NAMES

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)
