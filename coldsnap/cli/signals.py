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

    `request` must only set a flag and return: it runs inside a signal handler. A third Ctrl-C
    ends the process at once.
    """
    count = 0

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal count
        count += number == signal.SIGINT
        if count >= _LAST_STAGE:
            os._exit(128 + number)
        request(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
