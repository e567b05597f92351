"""Runs a DAG of instances in threads, within limits per host and overall.

A thread for each running instance and none for the others: instances wait in a queue, and one
that waits in a barrier gives its place back (`parked`), so limits never make a barrier hang.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from coldsnap.engine.preview import InstanceKey
from coldsnap.engine.setup import Limits

_GIVE_UP_AFTER = 15.0
"""Seconds that running instances get to end after the second cancel."""


class Schedule:
    """One walk over `needs` (key -> keys that come first). Needs outside of it count as met."""

    def __init__(self, needs: Mapping[InstanceKey, Sequence[InstanceKey]], limits: Limits) -> None:
        self._limits = limits
        self._changed = threading.Condition()
        self._waits = {key: sum(need in needs for need in wanted) for key, wanted in needs.items()}
        self._dependents: dict[InstanceKey, list[InstanceKey]] = {key: [] for key in needs}
        for key, wanted in needs.items():
            for need in wanted:
                if need in needs:
                    self._dependents[need].append(key)
        self._ready = deque(key for key, count in self._waits.items() if count == 0)
        self._running: dict[InstanceKey, float] = {}
        self._on_host: Counter[str] = Counter()
        self._active = 0
        self._halted = self._walking = False
        self._give_up_at: float | None = None

    def run(
        self,
        work: Callable[[InstanceKey], bool],
        on_blocked: Callable[[InstanceKey, InstanceKey], None],
    ) -> list[InstanceKey]:
        """Walk until all is done, or until what runs has ended after `halt`.

        Args:
            work: brings one instance to its end; True if what needs it may go on. Must not raise.
            on_blocked: called (instance, failed root) once for each that will never run.

        Returns:
            Instances that still ran when they were given up.
        """
        self._walking = True
        try:
            while (starting := self._next()) is not None:
                for key in starting:
                    args = (key, work, on_blocked)
                    threading.Thread(
                        target=self._one, args=args, name=str(key), daemon=True
                    ).start()
        finally:
            self._walking = False
        return [key for key, _since in self.running()]

    def _next(self) -> list[InstanceKey] | None:
        """What may start now, after waiting for it; None when there is nothing to wait for."""
        with self._changed:
            while True:
                if starting := self._startable():
                    return starting
                left = None if self._give_up_at is None else self._give_up_at - time.monotonic()
                if not self._running or (left is not None and left <= 0):
                    return None
                self._changed.wait(left)

    def halt(self) -> list[InstanceKey]:
        """Start nothing more; returns what has not been started."""
        with self._changed:
            self._halted = True
            self._changed.notify_all()
            return [
                key for key, count in self._waits.items() if count >= 0 and key not in self._running
            ]

    def give_up(self) -> None:
        """Wait for running instances a short time only."""
        with self._changed:
            self._halted = True
            self._give_up_at = time.monotonic() + _GIVE_UP_AFTER
            self._changed.notify_all()

    @property
    def is_running(self) -> bool:
        """Whether somebody waits in `run` for instances that have not ended."""
        return self._walking and bool(self.running())

    def running(self) -> list[tuple[InstanceKey, float]]:
        """(instance, monotonic start) of all that run now."""
        with self._changed:
            return list(self._running.items())

    @contextmanager
    def parked(self, host: str) -> Iterator[None]:
        """Give the caller's place back while it waits for others."""
        with self._changed:
            self._leave(host)
        try:
            yield
        finally:
            with self._changed:
                # Coming back never waits: limits bound what is started, and a barrier that
                # opens for 200 hosts must not be passed 64 at a time.
                self._enter(host)

    def _startable(self) -> list[InstanceKey]:
        """Take from the queue what the limits allow; called with the lock held."""
        if self._halted:
            return []
        taken: list[InstanceKey] = []
        for _ in range(len(self._ready)):
            if self._active >= self._limits.overall:
                break
            key = self._ready.popleft()
            if key.host and self._on_host[key.host] >= self._limits.per_host:
                self._ready.append(key)
                continue
            self._enter(key.host)
            self._running[key] = time.monotonic()
            taken.append(key)
        return taken

    def _one(
        self,
        key: InstanceKey,
        work: Callable[[InstanceKey], bool],
        on_blocked: Callable[[InstanceKey, InstanceKey], None],
    ) -> None:
        go_on = False
        try:
            go_on = work(key)
        finally:
            with self._changed:
                blocked = [] if go_on else self._block(key)
            for other in blocked:
                on_blocked(other, key)
            with self._changed:
                if go_on:
                    self._release(key)
                del self._running[key]
                self._leave(key.host)

    def _release(self, key: InstanceKey) -> None:
        self._waits[key] = -1
        for dependent in self._dependents[key]:
            if self._waits[dependent] < 0:
                continue
            self._waits[dependent] -= 1
            if self._waits[dependent] == 0:
                self._ready.append(dependent)

    def _block(self, key: InstanceKey) -> list[InstanceKey]:
        """Mark all that needs `key`, directly or not, as never to run; returns the new ones."""
        self._waits[key] = -1
        blocked: list[InstanceKey] = []
        pending = deque(self._dependents[key])
        while pending:
            other = pending.popleft()
            if self._waits[other] >= 0:
                self._waits[other] = -1
                blocked.append(other)
                pending += self._dependents[other]
        return blocked

    def _enter(self, host: str) -> None:
        self._active += 1
        self._on_host[host] += 1

    def _leave(self, host: str) -> None:
        self._active -= 1
        self._on_host[host] -= 1
        self._changed.notify_all()
