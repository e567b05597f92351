from __future__ import annotations

from typing import Annotated, Any

from pydantic import StringConstraints

from coldsnap.sdk import Spec


class PublishSpec(Spec):
    """Put a capture into the store as one artifact: objects, payloads and its descriptor."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
    """Name of the artifact; the tag that moves to it."""
    capture: dict[str, Any] | None = None
    """Output `capture` of core.checkpoint; null when it was captured before."""
    answers: tuple[dict[str, Any], ...] = ()
    """Output `answers` of core.accept; a restore must answer the same."""
    cold_start_seconds: float | None = None
    """Cold start to the first token, as measured; shown beside restore times."""
    profile: dict[str, Any] | None = None
    """Output `profile` of core.probe: architecture and CPU features to demand at restore."""
