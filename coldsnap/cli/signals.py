"""Ctrl-C and SIGTERM: the first asks the run to finish or undo, the next ones cut it off."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_LAST_STAGE: Final = 3
"""The third Ctrl-C ends this process whatever hangs."""
_HANDED_OVER: Final = (signal.SIGINT, signal.SIGTERM)


class Terminated(BaseException):
    """SIGTERM arrived."""


def raise_on_terminate() -> None:
    """Make SIGTERM unwind the stack like Ctrl-C does. Only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, stop)


@contextmanager
def handed_over(request: Callable[[int], None]) -> Iterator[None]:
    """While inside, SIGINT and SIGTERM call `request` with their number and nothing is raised.

    `request` is called from a thread of its own. A third Ctrl-C ends the process at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Python runs handlers in the main thread only, and not while that waits for a lock: a signal
    # in the moment before it waits, or taken by another thread, would be heard when the lock is
    # free, after all steps. The descriptor is written when the signal comes, whoever waits.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    listener = threading.Thread(
        target=_listen, args=(reader, request), name="coldsnap-signals", daemon=True
    )
    listener.start()
    descriptor = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    old = {number: signal.signal(number, _leave_to_listener) for number in _HANDED_OVER}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(descriptor)
        os.close(writer)  # what came before is still read
        listener.join()


def _listen(reader: int, request: Callable[[int], None]) -> None:
    """One byte for each signal, until the other end is closed."""
    count = 0
    with os.fdopen(reader, "rb", buffering=0) as numbers:
        while byte := numbers.read(1):
            number = byte[0]
            if number not in _HANDED_OVER:
                continue
            count += number == signal.SIGINT
            if count >= _LAST_STAGE:
                os._exit(128 + number)
            request(number)


def _leave_to_listener(_number: int, _frame: FrameType | None) -> None:
    """Without a handler Python would not write to the descriptor."""
