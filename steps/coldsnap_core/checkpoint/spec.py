from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from coldsnap.sdk import Spec


class CheckpointSpec(Spec):
    """Dump the quiesced unit with CRIU and let it serve on."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
    """Name of the capture; the store's tag."""
    generation: int | None = None
    """Number of the generation; the newest live one if absent."""
    unless_captured: bool = True
    """Do nothing when the store holds a capture of this plan's request already."""
