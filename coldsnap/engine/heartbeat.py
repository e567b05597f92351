"""A sign of life from steps that run long without saying anything."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Self

from coldsnap.engine.events import Kind
from coldsnap.engine.preview import InstanceKey
from coldsnap.engine.recorder import Recorder

HEARTBEAT = "heartbeat"
"""`RunEvent.state` of such a progress event."""


class Heartbeats:
    """A context manager; `running` gives (instance, monotonic start) of all that run."""

    def __init__(
        self,
        recorder: Recorder,
        running: Callable[[], list[tuple[InstanceKey, float]]],
        types: Mapping[InstanceKey, str],
        every: float,
    ) -> None:
        self._recorder, self._running, self._types = recorder, running, types
        self._every = every
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="coldsnap-heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._stopped.wait(min(1.0, self._every / 2)):
            now = time.monotonic()
            for key, since in self._running():
                if now - max(since, self._recorder.silent_since(key)) >= self._every:
                    self._recorder.emit(
                        Kind.STEP_PROGRESS,
                        key,
                        type=self._types.get(key, ""),
                        state=HEARTBEAT,
                        message="still running",
                        seconds=now - since,
                    )
