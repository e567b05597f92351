from __future__ import annotations

from typing import Literal

from coldsnap.sdk import Duration, Spec


class EvictSpec(Spec):
    """Stop generations of the unit: the older ones by default, or all."""

    keep: Literal["newest", "none"] = "newest"
    """`newest` stops everything but the newest live generation, or but `generation`."""
    generation: int | None = None
    """The generation that stays."""
    grace: Duration = 20.0
    """Time to end by itself before it is killed."""
