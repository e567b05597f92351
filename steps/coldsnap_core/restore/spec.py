from __future__ import annotations

from typing import Literal

from coldsnap.sdk import Duration, Spec


class RestoreSpec(Spec):
    """Bring a captured unit back as a new generation beside whatever serves now."""

    artifact: str
    """Name, name:tag or sha256:... of an artifact in the store."""
    verify: Literal["record", "full"] = "record"
    """`record` trusts a file whose stat equals the one of its verified record; `full` hashes."""
    deadline: Duration = 300.0
    """Longest time for CRIU; the new process tree is killed then."""
    through: Literal["restore", "hydrate", "accept"] = "restore"
    """How far to go in one job on the target, with no round trip in between: `hydrate` also brings
    the model bytes back, `accept` also demands the recorded answers. Steps core.hydrate and
    core.accept after it then find that done, and report it."""
    ready_timeout: Duration = 120.0
    """How long the engine may take to be ready after hydration."""
