from __future__ import annotations

from coldsnap.sdk import Spec


class StageSpec(Spec):
    """Bring the runtime pack to the host: verified, by content address, once per digest."""

    keep: int = 2
    """How many runtime packs to keep on the host, besides those that live units use."""
