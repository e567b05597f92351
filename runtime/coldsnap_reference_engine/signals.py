"""Ending: the signals that ask for it, and who waits for them."""

from __future__ import annotations

import os
import signal
import threading

from coldsnap_reference_engine.gate import Gate, Phase

_NUMBERS = (signal.SIGTERM, signal.SIGINT)


def block_termination() -> None:
    """To be called before NumPy is imported.

    The threads of its library inherit what is blocked; one that does not block a signal would be
    given it, and the process would end with requests unfinished.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _NUMBERS)


def termination(gate: Gate) -> threading.Event:
    """An event that a termination signal sets; while loading the process just ends.

    A thread waits for the blocked signals, because a handler could run inside the lock of a
    waiting event.
    """
    ended = threading.Event()

    def wait() -> None:
        number = signal.sigwait(_NUMBERS)
        if gate.phase is Phase.LOADING:
            os._exit(128 + number)
        ended.set()

    threading.Thread(target=wait, name="signals", daemon=True).start()
    return ended
