"""Barriers within one controller: threads wait for each other, by name, with a deadline.

A participant that will never arrive (its instance failed or was skipped) is withdrawn by the
walk, so that the others learn it at once and not at the deadline.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from coldsnap.sdk.barrier import BarrierOutcome


@dataclass
class _Round:
    """One barrier: who has come, since when, and how it ended."""

    participants: tuple[str, ...]
    opened: float
    arrived: set[str] = field(default_factory=set)
    outcome: BarrierOutcome | None = None


class Barriers:
    """All barriers of one walk.

    Rounds are apart for each step and attempt, so that a retry starts a new one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._rounds: dict[tuple[str, str], _Round] = {}
        self._withdrawn: dict[tuple[str, str], str] = {}
        self._present: set[tuple[str, str]] = set()

    def excuse(self, step: str, participant: str) -> None:
        """Wait for a participant no more: it is skipped, or passed before the run was resumed."""
        with self._changed:
            self._present.add((step, participant))
            for (owner, _name), room in self._rounds.items():
                if owner == step and participant in room.participants:
                    room.arrived.add(participant)
                    self._settle(step, room)
            self._changed.notify_all()

    def withdraw(self, step: str, participant: str, reason: str) -> None:
        """Abort every barrier of `step`, open or to come, that waits for `participant`."""
        with self._changed:
            self._withdrawn.setdefault((step, participant), reason)
            for (owner, _name), room in self._rounds.items():
                if owner == step and participant in room.participants:
                    self._settle(step, room)
            self._changed.notify_all()

    def arrive(
        self, step: str, name: str, participant: str, participants: Sequence[str], deadline: float
    ) -> BarrierOutcome:
        with self._changed:
            room = self._room(step, name, participants)
            room.arrived.add(participant)
            self._settle(step, room)
            self._changed.notify_all()
            while room.outcome is None:
                left = room.opened + deadline - self._clock()
                if left <= 0:
                    self._close(room)
                    break
                self._changed.wait(left)
            assert room.outcome is not None  # noqa: S101 - the loop ends no other way
            return room.outcome

    def abort(self, step: str, name: str, participant: str, reason: str) -> None:
        with self._changed:
            room = self._room(step, name, (participant,))
            if room.outcome is None:
                self._close(room, participant, reason)

    def _room(self, step: str, name: str, participants: Sequence[str]) -> _Round:
        room = self._rounds.get((step, name))
        if room is None:
            room = _Round(tuple(participants), self._clock())
            room.arrived.update(p for p in participants if (step, p) in self._present)
            self._rounds[step, name] = room
        return room

    def _settle(self, step: str, room: _Round) -> None:
        if room.outcome is not None:
            return
        if set(room.participants) <= room.arrived:
            self._close(room)
            return
        for participant in room.participants:
            reason = self._withdrawn.get((step, participant))
            if reason is not None and participant not in room.arrived:
                self._close(room, participant, reason)
                return

    def _close(self, room: _Round, aborted_by: str = "", reason: str = "") -> None:
        arrived = tuple(p for p in room.participants if p in room.arrived)
        missing = tuple(p for p in room.participants if p not in room.arrived)
        room.outcome = BarrierOutcome(
            arrived, missing, self._clock() - room.opened, aborted_by, reason
        )
        self._changed.notify_all()


@dataclass(frozen=True)
class InstanceBarrier:
    """What `StepContext.barrier` holds: the barriers of one step and attempt.

    While it waits it gives its place in the pool back, so that waiting participants never keep
    out the one they wait for.
    """

    barriers: Barriers
    step: str
    attempt: int = 1
    parked: Callable[[], AbstractContextManager[object]] = nullcontext

    def arrive(
        self, name: str, participant: str, participants: Sequence[str], deadline: float
    ) -> BarrierOutcome:
        with self.parked():
            return self.barriers.arrive(
                self.step, self._round(name), participant, participants, deadline
            )

    def abort(self, name: str, participant: str, reason: str) -> None:
        self.barriers.abort(self.step, self._round(name), participant, reason)

    def _round(self, name: str) -> str:
        return f"{name}#{self.attempt}"
