"""A child that is started before its hosts are known: it takes as long to start as a plan to load.

The first `coldsnap.fleet.link.Link` that needs a child takes it over; one that nobody needed is
ended with this process.
"""

from __future__ import annotations

import atexit
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldsnap.fleet.link import Child

_lock = threading.Lock()
_waiting: list[Child] = []


def begin() -> None:
    """Start a child, if none waits already; returns at once."""
    from coldsnap.fleet.link import COMMAND, Child  # noqa: PLC0415  # they import each other

    with _lock:
        if not _waiting:
            _waiting.append(Child(COMMAND))


def take(command: Sequence[str]) -> Child | None:
    """The child that waits, if it is one of `command` and lives."""
    from coldsnap.fleet.link import COMMAND  # noqa: PLC0415

    with _lock:
        if command != COMMAND or not _waiting:
            return None
        child = _waiting.pop()
    return None if child.is_dead else child


@atexit.register
def _end() -> None:
    """It has nothing to end on any host: it was never told of one."""
    while _waiting:
        _waiting.pop().kill()
