from __future__ import annotations

from coldsnap.sdk import Spec


class WakeSpec(Spec):
    """Wake a sleeping engine: its memory comes back and it serves."""

    generation: int | None = None
    """Number of the generation; the newest live one if absent."""
