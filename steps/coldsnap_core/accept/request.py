"""How an engine is asked, by core.accept and by a restore that goes on."""

from __future__ import annotations

from typing import Any

from coldsnap.sdk import StepContext
from coldsnap_core.launching import engine_of, model_of


def questions(ctx: StepContext) -> dict[str, Any]:
    """``{path, body, tolerance}``."""
    acceptance = engine_of(ctx).acceptance(model_of(ctx))
    return {
        "path": acceptance.path,
        "body": dict(acceptance.body),
        "tolerance": acceptance.tolerance,
    }
