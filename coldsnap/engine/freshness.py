"""How long facts that were fetched ahead of an apply may be used.

An apply that finds nothing to do should cost one round trip per host. But an answer that lay
around is no observation: after a few seconds, and whenever it matters (a lease was just taken, a
try failed), it is asked anew. What the run itself changes makes the fleet forget by itself.
"""

from __future__ import annotations

import time

from coldsnap.engine.fleet import Fleet

SECONDS = 3.0


class Freshness:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._ends = 0.0

    def begin(self) -> None:
        """The facts were fetched just now."""
        self._ends = time.monotonic() + SECONDS

    def ask(self, host: str, *, again: bool = False) -> None:
        """Called before a host is observed: drop what is too old for it."""
        if again or time.monotonic() >= self._ends:
            self._fleet.forget((host,))
