from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from coldsnap.sdk import Spec


class AcceptSpec(Spec):
    """Ask the engine fixed prompts; record its answers, or compare them with the capture's."""

    mode: Literal["record", "compare"] = "compare"
    """`record` keeps the answers with the capture; `compare` demands the recorded ones."""
    prompts: Annotated[tuple[str, ...], Field(min_length=1)] = ("The capital of France is",)
    """Recorded with the artifact; a comparison uses the recorded ones."""
    tokens: Annotated[int, Field(ge=1, le=4096)] = 24
    """Tokens to generate greedily for each prompt."""
    expected: list[dict[str, Any]] | None = None
    """Answers of the capture: `steps.ID.outputs.expected` of core.restore."""
    generation: int | None = None
    """Generation to ask; the newest live one if absent."""
    unless_captured: bool = False
    """Do nothing when the store holds a capture of this plan's request already."""
