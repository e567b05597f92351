"""Writes what happens: first to the journal, then into the history, then to whoever watches."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.events import EventSink, Kind, RunEvent
from coldsnap.engine.history import History, InstanceHistory, advance, key_json
from coldsnap.engine.journal import Journal
from coldsnap.engine.preview import InstanceKey


class Recorder:
    """One per process that works on a run; called from many threads."""

    def __init__(self, journal: Journal, history: History, sink: EventSink) -> None:
        self._journal = journal
        self._sink = sink
        self._lock = threading.Lock()
        self._news: dict[InstanceKey, float] = {}
        self.history = history

    @property
    def run(self) -> str:
        return self.history.run

    def write(self, kind: str, body: Mapping[str, Any]) -> None:
        """Make one record durable.

        Raises:
            ColdSnapError: ``journal.unwritable``: the run must not go on; as `Journal.append` for
                a body that cannot be written.
        """
        try:
            record = self._journal.append(kind, body)
        except ColdSnapError as error:
            if not error.code.startswith("file."):
                raise
            raise ColdSnapError(
                "journal.unwritable",
                f"the journal of run {self.run} cannot be written",
                details=(error.message,),
                remedy=f"make room for it, then: coldsnap plan resume {self.run}, or rollback",
            ) from error
        with self._lock:
            advance(self.history, record)

    def step(self, kind: str, key: InstanceKey, **body: Any) -> None:
        """A record of one instance; `kind` without ``step.``."""
        self.write(f"step.{kind}", {"key": key_json(key), **body})

    def of(self, key: InstanceKey) -> InstanceHistory:
        """What is known of an instance so far; an empty one if nothing."""
        with self._lock:
            return self.history.instances.get(key) or InstanceHistory(key)

    def emit(self, kind: Kind, key: InstanceKey | None = None, **fields: Any) -> None:
        """Tell the watcher; whatever it does, the run goes on."""
        if key is not None:
            self._news[key] = time.monotonic()
        event = RunEvent(kind, self.run, time.time(), key, **fields)
        with suppress(Exception):
            self._sink(event)

    def silent_since(self, key: InstanceKey) -> float:
        """Monotonic time of the last event of an instance; 0 if there was none."""
        return self._news.get(key, 0.0)
