"""A barrier: a step with participants, a deadline and named stragglers.

The same interface is served within one controller (`coldsnap.engine`) and, for units on
several hosts, by a network coordinator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class BarrierOutcome:
    arrived: tuple[str, ...]
    stragglers: tuple[str, ...]
    """Participants that had not arrived at the deadline."""
    waited: float
    """Seconds from the first arrival to the outcome."""
    aborted_by: str = ""
    reason: str = ""

    @property
    def passed(self) -> bool:
        return not self.stragglers and not self.aborted_by


class Barrier(Protocol):
    def arrive(
        self, name: str, participant: str, participants: Sequence[str], deadline: float
    ) -> BarrierOutcome:
        """Arrive and wait for the others; all participants get the same outcome.

        It comes when all have arrived, when one aborted, or `deadline` seconds after the first
        arrival.
        """

    def abort(self, name: str, participant: str, reason: str) -> None:
        """Release everybody with `aborted_by` set; later arrivals get the same outcome."""
