"""Events as JSON lines, for programs that follow a run."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self, TextIO

    from coldsnap.engine.events import RunEvent

KIND = "coldsnap-run-event"


def event_json(event: RunEvent) -> dict[str, Any]:
    """One event; fields that say nothing are left out."""
    value: dict[str, Any] = {
        "format": 1,
        "kind": KIND,
        "event": event.kind.value,
        "run": event.run,
        "time": event.time,
    }
    if event.key is not None:
        value.update(step=event.key.step, host=event.key.host, unit=event.key.unit)
    optional = {
        "type": event.type,
        "state": event.state,
        "message": event.message,
        "seconds": event.seconds,
        "error": event.error.to_json() if event.error else None,
        "data": dict(event.data),
    }
    value.update((name, given) for name, given in optional.items() if given not in ("", None, {}))
    if event.done is not None:
        value.update(done=event.done, total=event.total, unit_of_measure=event.unit)
    if event.attempt != 1:
        value["attempt"] = event.attempt
    return value


class JsonProgress:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._broken = False

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
        self._write(event_json(event))

    def note(self, message: str) -> None:
        note = {"format": 1, "kind": KIND, "event": "note", "time": time.time()}
        self._write({**note, "message": message})

    def _write(self, value: dict[str, Any]) -> None:
        with self._lock:
            if self._broken:
                return
            try:
                self._stream.write(json.dumps(value, default=str) + "\n")
                self._stream.flush()
            except (OSError, ValueError):
                self._broken = True
