from __future__ import annotations

from typing import Literal

from coldsnap.sdk import Spec


class PageCacheSpec(Spec):
    """Bring the host's page cache into a known state, for measurements."""

    state: Literal["as-is", "warm", "dropped"]
    """`warm` reads the named files, so that they are in memory; `dropped` empties the cache."""
    artifacts: tuple[str, ...] = ()
    """Names or digests of artifacts in the plan's store; `warm` reads their files."""
    model: bool = False
    """Whether `warm` also reads the folder of the plan's model."""
