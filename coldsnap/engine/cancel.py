"""Cancelling in two stages, asked for by a signal handler and carried out by a thread.

Stage 1 (first Ctrl-C, or SIGTERM): no new step starts, running ones end. Stage 2 (next Ctrl-C):
running ones are cut off. `request` only puts into a `SimpleQueue`, so that a signal handler may
call it: that runs between two byte codes of the main thread, which may hold any lock.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Self

from coldsnap.artifact.errors import ColdSnapError

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@dataclass(frozen=True)
class Stops:
    """What the threads of a walk look at."""

    halted: threading.Event = field(default_factory=threading.Event)
    """No new step, no new attempt: cancelled once, or something failed."""
    cut: threading.Event = field(default_factory=threading.Event)
    """Nothing new on any host: cancelled twice."""


class CancelToken:
    """Shared by the command line, which asks, and the engine, which obeys."""

    def __init__(self) -> None:
        self._requests: SimpleQueue[signal.Signals | None] = SimpleQueue()
        self._stages = (threading.Event(), threading.Event())
        self.first: signal.Signals | None = None
        """The signal that came first; it decides the exit code."""

    def request(self, signum: int = signal.SIGINT) -> None:
        """Ask for the next stage; safe in a signal handler."""
        self._requests.put(signal.Signals(signum))

    @property
    def stage(self) -> int:
        """0, 1 or 2, as far as the watching thread has taken it."""
        return sum(stage.is_set() for stage in self._stages)

    @property
    def exit_code(self) -> int:
        return EXIT_CODES.get(self.first or signal.SIGINT, 130)

    def wait(self, seconds: float) -> bool:
        """Sleep, but not past the first stage; True if it was reached."""
        return self._stages[0].wait(seconds)

    def check(self) -> None:
        """Raises: ColdSnapError: ``run.cancelled`` once the first stage is reached."""
        if self._stages[0].is_set():
            raise cancelled("stopped on request")

    def watch(self, on_stage: Callable[[int], None]) -> CancelWatch:
        """Start the thread that takes requests; `on_stage` is called from it, once per stage."""
        return CancelWatch(self, self._requests, self._advance, on_stage)

    def _advance(self, signum: signal.Signals) -> int:
        """The stage just reached, or 0 when the request changes nothing."""
        self.first = self.first or signum
        stage = self.stage
        # A supervisor repeats SIGTERM without meaning more by it; only a person presses twice.
        if stage >= len(self._stages) or (stage >= 1 and signum is signal.SIGTERM):
            return 0
        self._stages[stage].set()
        return stage + 1


class CancelWatch:
    """The watching thread of one walk; a context manager."""

    def __init__(
        self,
        token: CancelToken,
        requests: SimpleQueue[signal.Signals | None],
        advance: Callable[[signal.Signals], int],
        on_stage: Callable[[int], None],
    ) -> None:
        self._token, self._requests = token, requests
        self._advance, self._on_stage = advance, on_stage
        self._thread = threading.Thread(target=self._loop, name="coldsnap-cancel", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._requests.put(None)
        self._thread.join()

    def _loop(self) -> None:
        while (signum := self._requests.get()) is not None:
            if stage := self._advance(signum):
                self._on_stage(stage)


def cancelled(message: str, where: str = "") -> ColdSnapError:
    return ColdSnapError(
        "run.cancelled", message, where, remedy="coldsnap plan resume, or coldsnap plan rollback"
    )
