from __future__ import annotations

from coldsnap.sdk import Spec


class ExposeSpec(Spec):
    """Publish the unit's ports on the host for a generation; connections move to it at once."""

    generation: int | None = None
    """Generation to expose; the newest live one if absent."""
