"""What a verb gets beside its request: where it works, and whom it tells how far it is.

A verb is ``def name(request: dict[str, Any], context: Context) -> dict[str, Any]``, named in
`coldsnap_runtime.verbs`. It raises ColdSnapError for what can be explained. A job that is
cancelled sees `Cancelled` out of whatever it was doing: undo in ``except BaseException`` or
``finally``, never swallow it. Processes that must outlive a job's end (a unit, a watchdog) must
be in a session of their own: what is left in a job's session when it ends abnormally is killed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from coldsnap_runtime.timing import boottime

Emit = Callable[[dict[str, Any]], None]

_PROGRESS_PERIOD = 0.1
"""Seconds between two progress events of one message; the last one always passes."""


class Cancelled(BaseException):
    """The verb was told to stop (SIGTERM). Not an Exception, so that no retry loop eats it."""


class Context:
    """One run of one verb.

    Attributes:
        state_dir: absolute folder of everything kept on this host.
        pack: absolute folder of the runtime pack (or of the source tree's ``runtime``).
        job: id of the job that this process is; empty outside a job.
        received: when the request came, in seconds since boot (CLOCK_BOOTTIME).
    """

    def __init__(
        self, state_dir: str, pack: str, emit: Emit, job: str = "", received: float | None = None
    ) -> None:
        self.state_dir = state_dir
        self.pack = pack
        self.job = job
        self.received = boottime() if received is None else received
        self._emit = emit
        self._progress_at = 0.0
        self._progress_message = ""
        self._shields = 0
        self._cancel_pending = False

    def path(self, *parts: str) -> str:
        """A path below the state folder."""
        return os.path.join(self.state_dir, *parts)

    def phase(self, message: str) -> None:
        """Say what begins now."""
        self._emit({"event": "phase", "message": message})

    def log(self, message: str) -> None:
        self._emit({"event": "log", "message": message})

    def progress(self, message: str, done: int, total: int | None = None, unit: str = "B") -> None:
        """Say how far `message` is; may be called as often as one likes."""
        now = time.monotonic()
        is_same = message == self._progress_message
        if is_same and done != total and now - self._progress_at < _PROGRESS_PERIOD:
            return
        self._progress_at, self._progress_message = now, message
        self._emit(
            {"event": "progress", "message": message, "done": done, "total": total, "unit": unit}
        )

    @contextlib.contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """Hold a cancel back while the block runs; it is raised at the block's end."""
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        self.check_cancelled()

    def uncancellable(self) -> Context:
        """The same ears, for undoing: no cancel reaches what uses it."""
        return Context(self.state_dir, self.pack, self._emit, self.job, self.received)

    def check_cancelled(self) -> None:
        """Raise `Cancelled` if a cancel came in and nothing holds it back."""
        if self._cancel_pending and not self._shields:
            self._cancel_pending = False
            raise Cancelled

    def cancel(self) -> None:
        """Called by the signal handler."""
        self._cancel_pending = True
        self.check_cancelled()
