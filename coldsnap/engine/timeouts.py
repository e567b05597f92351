"""Work that must end in time: Python cannot end a thread, so one that does not end is given up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from coldsnap.artifact.errors import ColdSnapError

T = TypeVar("T")


def within(seconds: float, work: Callable[[], T], *, on_giving_up: Callable[[], None]) -> T:
    """The result of `work`, done in a thread.

    What changes a host ends by itself, because its own time-out is what was left; this is for
    code that hangs anywhere else.

    Raises:
        ColdSnapError: ``step.timeout`` when the thread was given up.
        BaseException: what `work` raised.
    """
    done: list[T] = []
    failed: list[BaseException] = []

    def target() -> None:
        try:
            done.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again by the waiting thread
            failed.append(error)

    thread = threading.Thread(target=target, name="coldsnap-attempt", daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if done:
        return done[0]
    on_giving_up()
    raise ColdSnapError(
        "step.timeout",
        f"did not end within {seconds:g} s and was given up",
        remedy="raise the step's timeout",
        changed=True,
    )
