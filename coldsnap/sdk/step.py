"""The step contract: observe reads, diff is pure, apply does the change, recover puts back.

A dry run is not calling `apply`.
"""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from coldsnap.sdk.barrier import Barrier
from coldsnap.sdk.change import Change
from coldsnap.sdk.engine import Engine
from coldsnap.sdk.host import FactRequest, Host, JobEvent
from coldsnap.sdk.spec import Spec
from coldsnap.sdk.topology import Model, Topology, Unit

Seen: TypeAlias = Mapping[str, Any]
"""What was observed: JSON values. It is journalled, compared for stale plans, and given to
`recover`; so it holds what `diff` needs and nothing that changes by itself (no clocks)."""

Outputs: TypeAlias = Mapping[str, Any]


class Scope(StrEnum):
    """Where one instance of a step runs."""

    HOST = "host"
    """Once on each selected host."""
    UNIT = "unit"
    """Once for each unit on each host it is placed on."""
    RUN = "run"
    """Once per run, on no host."""


@dataclass(frozen=True)
class RuntimeRef:
    """The runtime pack: where it is here, and where it is on a target."""

    digest: str
    """sha256:... of the file tree."""
    archive: str
    """Local path of its tar file."""
    archive_sha256: str
    archive_bytes: int


@dataclass(frozen=True)
class PlanView:
    """What a step may know of its plan."""

    name: str
    driver: str
    model: Model | None
    topology: Topology | None
    store: str
    """Store URI, default ``oci-layout:{state_dir}/store``."""
    request: Mapping[str, Any]
    """The resolved operation request (format 4 without placement)."""
    request_sha256: str


@dataclass(frozen=True)
class StepContext:
    run: str
    """Run id; empty for a preview that belongs to no run."""
    step: str
    """Expanded id, such as ``capture.checkpoint``."""
    host: Host | None
    """None for Scope.RUN."""
    unit: Unit | None
    """None unless Scope.UNIT."""
    plan: PlanView
    engine: Engine | None
    runtime: RuntimeRef | None
    barrier: Barrier | None = None
    instances: tuple[str, ...] = ()
    """Labels of all instances of this step (participants of a barrier)."""
    emit: Callable[[JobEvent], None] = field(default=lambda _event: None)
    attempt: int = 1
    deadline: float | None = None
    """Seconds this attempt may take."""
    redo: int = 0
    """How often this run had to do again what it had done already (it was put back, or its
    effect was gone when the run was resumed); a new job each time."""

    @property
    def where(self) -> str:
        """Label for errors and rows: ``gpu-1``, ``gpu-1: unit u0``, or ``run``."""
        if self.host is None:
            return "run"
        return f"{self.host.name}: unit {self.unit.id}" if self.unit else self.host.name

    @property
    def job(self) -> str:
        """Id of the runtime job of this instance: the same on resume, so that it is found."""
        unit = f".{self.unit.id}" if self.unit else ""
        redo = f".again{self.redo}" if self.redo else ""
        return f"{self.run}.{self.step}{unit}{redo}"


S = TypeVar("S", bound=Spec)


class Step(ABC, Generic[S]):
    """One step type. Subclasses set the class variables and write the four methods."""

    type: ClassVar[str]
    """``<pack>.<verb>``"""
    summary: ClassVar[str]
    """One line for ``coldsnap step list``."""
    spec: ClassVar[builtins.type[Spec]]
    scope: ClassVar[Scope] = Scope.UNIT
    outputs: ClassVar[Mapping[str, str]] = {}
    """Name -> what it is."""
    reversible: ClassVar[bool] = True
    """False: `recover` cannot put back; rollback says so and goes on."""
    read_only: ClassVar[bool] = False
    """True: never changes a host; runs without a lease."""

    def reads(self, spec: S, ctx: StepContext) -> Sequence[FactRequest]:
        """Facts that `observe` will ask, so that one round trip fetches all of a host's."""
        del spec, ctx
        return ()

    @abstractmethod
    def observe(self, spec: S, ctx: StepContext) -> Seen:
        """Read only, cheap, repeatable."""

    @abstractmethod
    def diff(self, spec: S, seen: Seen, ctx: StepContext) -> Change:
        """Pure: no I/O. Raise ColdSnapError when the step cannot be done (admission)."""

    @abstractmethod
    def apply(self, spec: S, change: Change, ctx: StepContext) -> Outputs:
        """Do `change` and nothing else; must be idempotent under the same `ctx.job`."""

    def recover(self, spec: S, seen: Seen, ctx: StepContext) -> None:
        """Return to what was `seen` before apply; must be idempotent."""
        del spec, seen, ctx

    def stands(self, spec: S, seen: Seen, outputs: Outputs, ctx: StepContext) -> bool:
        """Whether what this run did, with these outputs, is still there; asked on resume.

        By default when the diff has nothing to do. A step whose diff cannot see its own effect
        (a dump that is not published yet) says it from its outputs, or does it again.
        """
        del outputs
        return not self.diff(spec, seen, ctx).is_pending

    def foresee(self, ctx: StepContext) -> Change | None:
        """What a preview can say while the parameters wait for the output of another step.

        Reads only. None: nothing; it is shown as known after apply.
        """
        del ctx
        return None

    def known(self, spec: S, seen: Seen, ctx: StepContext) -> Outputs:
        """Outputs of an instance that has nothing to do, so that later steps can refer to them."""
        del spec, seen, ctx
        return {}
