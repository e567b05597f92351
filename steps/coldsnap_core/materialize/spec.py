from __future__ import annotations

from typing import Literal

from coldsnap.sdk import Spec


class MaterializeSpec(Spec):
    """Build the native payload of an artifact out of a unit that came back by recovery."""

    mode: Literal["off", "async", "required"] = "required"
    """`required`: the step ends when the payload is published; `async`: a job on the target goes
    on after the run, and its failure costs nothing but the payload; `off`: nothing."""
    generation: int | None = None
    """Number of the generation; the newest live one if absent."""
