"""Waiting for what another process does, without a guess of how long that takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(condition: Callable[[], T], what: str = "it", seconds: float = 60.0) -> T:
    """The first true value of `condition`.

    `seconds` only bound a failure: nothing that works takes them, on a busy machine neither.
    """
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(0.02)
    return value
