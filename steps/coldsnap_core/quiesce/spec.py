from __future__ import annotations

from coldsnap.sdk import Duration, Spec


class QuiesceSpec(Spec):
    """Drain the engine and let it give back what must not enter the process image."""

    hold: Duration = 300.0
    """The target serves again by itself when nobody went on after this long."""
    generation: int | None = None
    """Number of the generation; the newest live one if absent."""
    unless_captured: bool = False
    """Do nothing when the store holds a capture of this plan's request already."""
