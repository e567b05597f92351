"""One line per transition, and a sign of life every ten seconds: for logs and CI."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from coldsnap.engine.events import Kind
from coldsnap.render.palette import clean
from coldsnap.render.progress.rows import Tracker, heartbeat, label, sentence

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self, TextIO

    from coldsnap.engine.events import RunEvent
    from coldsnap.engine.preview import InstanceKey

HEARTBEAT = 10.0
"""Seconds without a line after which a running step says that it lives."""


class NoProgress:
    """Says nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def __call__(self, event: RunEvent) -> None:
        pass

    def note(self, message: str) -> None:
        pass


class PlainProgress:
    """Lines ``17:24:36 gpu-1 capture.stage: stage 2 files``."""

    def __init__(
        self,
        stream: TextIO,
        *,
        verbose: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._verbose = verbose
        self._tracker = Tracker(monotonic)
        self._spoke: dict[InstanceKey, float] = {}
        self._phases: dict[InstanceKey, str] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._broken = False
        self._thread = threading.Thread(target=self._beat_on, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(timeout=2)

    def __call__(self, event: RunEvent) -> None:
        with self._lock:
            row = self._tracker.take(event)
            said = sentence(event, verbose=self._verbose)
            if said is None and event.kind is Kind.STEP_PROGRESS and row is not None:
                said = self._phase(row.key, row.message)
            if said is not None:
                self._say(event.key, said[0])
            if event.kind is Kind.STEP_STARTED and event.key is not None:
                self._phases[event.key] = event.message
            if event.key is not None and event.key not in self._tracker.rows:
                self._spoke.pop(event.key, None)
                self._phases.pop(event.key, None)

    def note(self, message: str) -> None:
        with self._lock:
            self._say(None, clean(message))

    def beat(self) -> None:
        """Let every step speak that has been silent for too long."""
        with self._lock:
            now = self._tracker.now()
            for key, row in self._tracker.rows.items():
                if now - self._spoke.get(key, row.started) >= HEARTBEAT:
                    self._say(key, heartbeat(row, now))

    def _phase(self, key: InstanceKey, message: str) -> tuple[str, str] | None:
        if not message or self._phases.get(key) == message:
            return None
        self._phases[key] = message
        return clean(message), ""

    def _say(self, key: InstanceKey | None, text: str) -> None:
        place = ""
        if key is not None:
            self._spoke[key] = self._tracker.now()
            place = " ".join(label(key)) + ": "
        if self._broken:
            return
        try:
            self._stream.write(f"{time.strftime('%H:%M:%S')} {place}{text}\n")
            self._stream.flush()
        except (OSError, ValueError):
            # Who reads stderr has gone; the run goes on.
            self._broken = True

    def _beat_on(self) -> None:
        while not self._ended.wait(1.0):
            self.beat()
