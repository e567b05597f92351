from __future__ import annotations

from coldsnap.sdk import Spec


class ResumeSpec(Spec):
    """Let a quiesced engine serve again."""

    generation: int | None = None
    """Number of the generation; the newest live one if absent."""
