from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from coldsnap.sdk import Duration, Spec


class BarrierSpec(Spec):
    """Wait until every instance of this step has arrived; name the stragglers at the deadline."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=128)] = "prepared"
    """What the participants have reached; shown while they wait."""
    deadline: Duration = 600.0
    """From the first arrival."""
