"""How long the parts of a start take, and the engine's log."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field


@dataclass
class Timeline:
    """Seconds that the parts of a start took."""

    begin: float = field(default_factory=time.monotonic)
    spans: dict[str, float] = field(default_factory=dict)
    _last: float = 0.0

    def __post_init__(self) -> None:
        self._last = self.begin

    def mark(self, name: str) -> None:
        """End the part that began at the last mark."""
        now = time.monotonic()
        self.spans[name] = now - self._last
        self._last = now
        log(f"{name}: {self.spans[name]:.2f} s")


def log(message: str) -> None:
    """One line to stderr: a snapshot must not hold files of its own open."""
    print(f"coldsnap-reference: {message}", file=sys.stderr, flush=True)
