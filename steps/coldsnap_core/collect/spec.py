from __future__ import annotations

from typing import Annotated

from pydantic import Field

from coldsnap.sdk import Spec


class CollectSpec(Spec):
    """Keep the newest artifacts of each name in the store and remove what nothing refers to."""

    keep: Annotated[int, Field(ge=1)] = 5
    """Artifacts to keep for each name."""
