"""What can be cancelled: everything that runs now, nothing that starts later."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Cancels:
    """Register of running work, each with a function that stops it."""

    def __init__(self) -> None:
        self._epoch = 0
        self._lock = threading.Lock()
        self._running: dict[object, tuple[int, Callable[[], None]]] = {}

    @contextmanager
    def running(self, stop: Callable[[], None]) -> Iterator[None]:
        """`stop` may be called once, from another thread, while the block runs."""
        token = object()
        with self._lock:
            self._running[token] = (self._epoch, stop)
        try:
            yield
        finally:
            with self._lock:
                self._running.pop(token, None)

    def cancel(self) -> None:
        """Stop what runs now. Takes no lock itself, so it may be called by a signal handler."""
        self._epoch += 1
        threading.Thread(target=self._stop_older, args=(self._epoch,), daemon=True).start()

    def _stop_older(self, epoch: int) -> None:
        with self._lock:
            older = [token for token, (began, _) in self._running.items() if began < epoch]
            stops = [self._running.pop(token)[1] for token in older]
        for stop in stops:
            stop()
