from __future__ import annotations

from typing import Literal

from coldsnap.sdk import Spec


class StatusSpec(Spec):
    """Tell what runs of the unit: state, driver, artifact, memory, provider, last results."""

    demand: Literal["nothing", "running", "serving"] = "nothing"
    """Fail unless a generation runs, or serves; `nothing` only tells."""
