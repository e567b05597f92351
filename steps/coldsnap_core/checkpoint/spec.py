from __future__ import annotations

from typing import Annotated, Any

from pydantic import StringConstraints

from coldsnap.sdk import Spec


class CheckpointSpec(Spec):
    """Dump the quiesced unit with CRIU and let it serve on."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
    """Name of the capture; the store's tag."""
    generation: int | None = None
    """Number of the generation; the newest live one if absent."""
    answers: tuple[dict[str, Any], ...] = ()
    """Output `answers` of core.accept. Where memory and device allow it, a canary of the capture
    must give them before its faster ways to be restored count as proven."""
    unless_captured: bool = True
    """Do nothing when the store holds a capture of this plan's request already."""
