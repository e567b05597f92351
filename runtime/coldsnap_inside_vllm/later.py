"""CUDA graphs after the first answer: ``COLDSNAP_WARM_UP: later`` in the unit's ``env:`` (`n580`).

A restored template whose start-up plan fits serves without graphs at first, as vLLM itself does
for batches that have none, and captures them in the first pause after its first answers. Requests
that come meanwhile wait. Only for vLLM's newer model runner, which chooses graphs by what there is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

from coldsnap_inside_vllm.gate import Gate

VARIABLE, LATER = "COLDSNAP_WARM_UP", "later"
QUIET_SECONDS = 1.0
"""Without a request, after which the first answers count as given."""
PATIENCE_SECONDS = 30.0
"""For a first request to come."""
_POLL_SECONDS = 0.05


@runtime_checkable
class Unfinished(Protocol):
    """A memory whose engine may serve before it is warm."""

    async def is_unfinished(self) -> bool: ...

    async def finish(self) -> None:
        """Capture what is missing; nothing runs in the engine."""


@contextlib.contextmanager
def without_graphs(runner: Any, *, planned: bool) -> Iterator[bool]:
    """Whether vLLM's warm-up leaves graphs out within this; yields it.

    Args:
        runner: vLLM's model runner.
        planned: whether a start-up plan is used: else this start is what is measured for one.
    """
    manager = getattr(runner, "cudagraph_manager", None)
    is_wanted = planned and os.environ.get(VARIABLE) == LATER
    if not is_wanted or getattr(manager, "_graphs_captured", None) is not False:
        yield False
        return
    runner.capture_model = lambda: 0  # hides the method
    try:
        yield True
    finally:
        del runner.capture_model


async def finish_in_a_pause(memory: Unfinished, gate: Gate, lock: asyncio.Lock) -> None:
    """Let `memory` finish once the first answers are given; whatever fails, the engine serves on.

    Args:
        memory: of the engine.
        gate: in front of it; new requests wait at it meanwhile.
        lock: of whoever holds the engine still.
    """
    try:
        await _first_pause(gate)
        async with lock:
            with gate.waiting():
                await gate.drained()
                await memory.finish()
    except Exception as error:  # noqa: BLE001 - graphs are a matter of speed
        sys.stderr.write(f"coldsnap: no CUDA graphs: {type(error).__name__}: {error}\n")


async def _first_pause(gate: Gate) -> None:
    loop = asyncio.get_running_loop()
    begin = quiet = loop.time()
    served = gate.served
    while True:
        await asyncio.sleep(_POLL_SECONDS)
        now = loop.time()
        if gate.running or gate.served != served:
            served, quiet = gate.served, now
        if served and now - quiet >= QUIET_SECONDS:
            return
        if not served and not gate.running and now - begin >= PATIENCE_SECONDS:
            return
