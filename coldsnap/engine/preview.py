"""The preview: what `plan diff` found, as data. coldsnap.render shows it, saved plans keep it."""

from __future__ import annotations

from dataclasses import dataclass, field

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.sdk.change import Action, Change


@dataclass(frozen=True, order=True)
class InstanceKey:
    """One step on one host for one unit; host and unit are empty where the scope has none."""

    step: str
    host: str = ""
    unit: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.step, self.host, self.unit) if part)


@dataclass(frozen=True)
class InstancePreview:
    key: InstanceKey
    type: str
    change: Change | None
    """None when the instance is skipped or failed to be observed."""
    seen_sha256: str = ""
    """Digest of the canonical JSON of what was seen; compared when a saved plan is applied."""
    skipped: str = ""
    """Reason: ``when`` was false, or a slice leaves it out."""
    error: ColdSnapError | None = None


@dataclass(frozen=True)
class Preview:
    plan_name: str
    plan_path: str
    plan_sha256: str
    request_sha256: str
    run: str
    instances: tuple[InstancePreview, ...]
    """In topological order, then host, then unit."""
    unreachable: dict[str, ColdSnapError] = field(default_factory=dict)

    def count(self, action: Action) -> int:
        return sum(1 for i in self.instances if i.change and i.change.action is action)

    @property
    def errors(self) -> tuple[ColdSnapError, ...]:
        return tuple(i.error for i in self.instances if i.error) + tuple(self.unreachable.values())

    @property
    def is_pending(self) -> bool:
        return any(i.change is not None and i.change.is_pending for i in self.instances)

    @property
    def pausing(self) -> tuple[InstancePreview, ...]:
        """Instances that pause serving."""
        return tuple(
            i
            for i in self.instances
            if i.change and i.change.is_pending and i.change.pauses_serving
        )
