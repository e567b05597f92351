"""NCCL's communicators of one worker over a snapshot, where the unit has `preload: [nccl]`."""

from __future__ import annotations

import os
import sys

from coldsnap_runtime.preloads import NcclBridge, nccl_bridge

FOLDER = "/run/coldsnap/unit/nccl"
"""Where ranks meet again: each generation has one of its own, and a key is used once in it."""
_CLOSE_SECONDS = 30.0
_REBUILD_SECONDS = 60.0


def close(*, graphs_dropped: bool) -> int | None:
    """Close them all; the worker is idle. How many there are; None where none is bridged.

    Raises:
        ColdSnapError: ``nccl.*``; after ``nccl.busy`` and ``nccl.refused`` all is as it was.
    """
    bridge = _bridge()
    if bridge is None:
        return None
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    bridge.close(graphs_dropped=graphs_dropped, seconds=_CLOSE_SECONDS)
    return len(bridge.status()["communicators"])


def rebuild(folder: str = FOLDER) -> int:
    """Make what was closed again, with the workers of the other ranks; how many.

    Raises:
        ColdSnapError: ``nccl.*``; the engine must be stopped then.
    """
    bridge = _bridge()
    if bridge is None or bridge.status()["state"] != "closed":
        return 0
    os.makedirs(folder, mode=0o700, exist_ok=True)
    bridge.rebuild(folder, seconds=_REBUILD_SECONDS)
    return len(bridge.status()["communicators"])


def _bridge() -> NcclBridge | None:
    bridge = nccl_bridge()
    return bridge if bridge is not None and bridge.status()["on"] else None
