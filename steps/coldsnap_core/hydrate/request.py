"""What the runtime is told of a hydration, by core.hydrate and by a restore that goes on."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from coldsnap.sdk import StepContext
from coldsnap_core.launching import calls, engine_of, unit_of


def hydration(ctx: StepContext, ready_timeout: float) -> dict[str, Any]:
    """``{calls, ready}``; the engine may take `ready_timeout` seconds to be ready."""
    engine = engine_of(ctx)
    ready = {**asdict(engine.ready(unit_of(ctx))), "retry_seconds": ready_timeout}
    return {"calls": calls(engine.hydrate()), "ready": ready}
