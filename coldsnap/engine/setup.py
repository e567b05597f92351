"""What an engine call needs: plan, hosts, step types, folders, limits. Made by the command line."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coldsnap.engine.cancel import CancelToken
from coldsnap.engine.events import EventSink, RunEvent
from coldsnap.engine.fleet import Fleet
from coldsnap.engine.jobs import JobEnder
from coldsnap.engine.lease import TTL, LeaseKeeper
from coldsnap.plan.model import Plan
from coldsnap.plan.registry import Registry
from coldsnap.sdk.step import RuntimeRef


@dataclass(frozen=True)
class Limits:
    """How much goes on at the same time."""

    overall: int = 64
    """Instances, all hosts together."""
    per_host: int = 4
    """Instances on one host."""
    hang_grace: float = 30.0
    """Seconds after its timeout in which an attempt must have ended by itself."""
    heartbeat: float = 10.0
    """Seconds without news after which a running step is reported as still running."""
    lease_ttl: float = TTL


def _quiet(_event: RunEvent) -> None:
    """The sink of nobody."""


@dataclass(frozen=True)
class Setup:
    plan: Plan
    text: str
    """The plan document as it was read."""
    fleet: Fleet
    registry: Registry
    """Installed step types and engines."""
    project: Path = Path()
    """Folder in which ``.coldsnap/runs`` is kept."""
    runtime: RuntimeRef | None = None
    sink: EventSink = _quiet
    cancel: CancelToken = field(default_factory=CancelToken)
    limits: Limits = Limits()
    leases: LeaseKeeper | None = None
    """None: leases on the targets, through the runtime pack."""
    jobs: JobEnder | None = None
    """None: jobs on the targets are ended through the runtime pack."""
    selected: frozenset[str] | None = None
    """Ids of the steps of a slice (``--only``, ``--from``, ``--until``); None: all."""

    def origin(self) -> dict[str, Any]:
        """Plan and inventory, as journals and saved plans name them."""
        return {
            "plan": {
                "path": self.plan.path,
                "name": self.plan.name,
                "text": self.text,
                "document_sha256": self.plan.document_sha256,
                "request_sha256": self.plan.request_sha256,
                "variables": self.plan.values(),
            },
            "inventory": {"path": self.fleet.path, "sha256": self.fleet.sha256},
        }
