from __future__ import annotations

from coldsnap.sdk import Spec


class SleepSpec(Spec):
    """Let the engine release its accelerator memory and answer 503 until it wakes."""

    generation: int | None = None
    """Number of the generation; the newest live one if absent."""
