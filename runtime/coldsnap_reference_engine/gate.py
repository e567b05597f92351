"""Who may enter: requests are counted while they are served, and refused when the gate is shut."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum


class Phase(str, Enum):
    LOADING = "loading"
    SERVING = "serving"
    DRAINING = "draining"
    QUIESCED = "quiesced"
    """Weights and KV are given back; an image may be taken. After a restore it is still this."""
    HYDRATING = "hydrating"
    SLEEPING = "sleeping"
    BROKEN = "broken"
    """Another rank is gone; only a new start or a restore helps."""
    STOPPING = "stopping"


class Unavailable(Exception):  # noqa: N818 - it is a state, not a fault
    """The engine does not serve in this phase."""

    def __init__(self, phase: Phase, detail: str = "") -> None:
        message = f"the engine is {phase.value}"
        super().__init__(f"{message}: {detail}" if detail else message)
        self.phase = phase


class Gate:
    """The engine's phase and the number of requests inside."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._phase = Phase.LOADING
        self.detail = ""
        """Why it does not serve, when something failed."""
        self.inside = 0

    @property
    def phase(self) -> Phase:
        return self._phase

    def turn(self, phase: Phase, detail: str = "") -> None:
        with self._changed:
            self._phase, self.detail = phase, detail
            self._changed.notify_all()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """For the time of one request. Raises Unavailable."""
        with self._changed:
            if self._phase is not Phase.SERVING:
                raise Unavailable(self._phase, self.detail)
            self.inside += 1
        try:
            yield
        finally:
            with self._changed:
                self.inside -= 1
                self._changed.notify_all()

    def drain(self, seconds: float) -> bool:
        """Wait until nobody is inside; False if that took longer."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while self.inside:
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    return not self.inside
        return True
