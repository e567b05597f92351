from __future__ import annotations

from typing import Literal

from pydantic import ValidationInfo, field_validator

from coldsnap.sdk import Duration, Spec


class RestoreSpec(Spec):
    """Bring a captured unit back as a new generation beside whatever serves now."""

    artifact: str
    """Name, name:tag or sha256:... of an artifact in the store."""
    verify: Literal["record", "digest", "full"] = "record"
    """`record` trusts a file whose stat equals the one of its verified record; `digest` hashes
    small files before and pages of the process image as they are read; `full` hashes all before."""
    image_mode: Literal["auto", "plain", "ext", "mmap"] = "auto"
    """How the pages of the process image come back. `ext`: many threads fill them; `mmap`: they
    are mapped copy-on-write, for units with `memory_guard`; `plain`: by CRIU alone; `auto`: ext.
    What cannot be or fails falls to the next of mmap, ext, plain; the output `process_image` says
    which it was, and why."""
    deadline: Duration = 300.0
    """Longest time for CRIU, all tries together; the new process tree is killed then."""
    through: Literal["restore", "hydrate", "accept"] = "restore"
    """How far to go in one job on the target, with no round trip in between: `hydrate` also brings
    the model bytes back, `accept` also demands the recorded answers. Steps core.hydrate and
    core.accept after it then find that done, and report it."""
    ready_timeout: Duration = 120.0
    """How long the engine may take to be ready after hydration."""
    provider: Literal["auto", "native", "recovery"] = "auto"
    """Where the weights come from. `native`: the artifact's payload, or the restore is refused;
    `recovery`: the model's own files, which must be those of the capture; `auto`: native, else
    recovery. What was used, and why not the other, is in the output `provider`."""
    cold_start: bool = False
    """Whether the unit may be started cold, as core.launch does, when it cannot be restored: the
    last resort of `provider: auto`. Nothing that serves is stopped for it."""

    @field_validator("cold_start")
    @classmethod
    def _only_beside_auto(cls, wanted: bool, info: ValidationInfo) -> bool:
        provider = info.data.get("provider", "auto")
        if wanted and provider != "auto":
            raise ValueError(
                f"a cold start is the last resort of provider: auto, not of {provider}"
            )
        return wanted
