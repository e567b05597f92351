from __future__ import annotations

from typing import Literal

from coldsnap.sdk import Duration, Spec


class HydrateSpec(Spec):
    """Bring model bytes and KV back into a restored engine, verified."""

    generation: int | None = None
    """Number of the generation; the newest live one if absent."""
    ready_timeout: Duration = 120.0
    """How long the engine may take to be ready afterwards."""
    provider: Literal["auto", "native", "recovery"] | None = None
    """Where the weights come from; absent: as core.restore was told. See there."""
