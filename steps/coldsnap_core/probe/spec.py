from __future__ import annotations

from coldsnap.sdk import Spec


class ProbeSpec(Spec):
    """What the host can do, with reasons; refuse it when a needed ability is missing."""

    require: tuple[str, ...] = ()
    """Features that must be passed, besides the one of the plan's snapshot driver."""
    admit: bool = True
    """False only reports."""
