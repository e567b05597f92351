"""The host feature profile, format 1: what a host can do, as measured, and who may go there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from coldsnap.artifact.decode import Record
from coldsnap.artifact.rules import Count, Id, Line, Seconds

Status = Literal["passed", "failed", "unsupported", "unqualified"]


@dataclass(frozen=True)
class Cpu(Record):
    model: Line = ""
    flags: Annotated[tuple[Line, ...], Count(0, 4096)] = ()


@dataclass(frozen=True)
class HostIdentity(Record):
    machine_id: Line
    boot_id: Line
    architecture: Line
    kernel: Line = ""
    hostname: Line = ""
    cpu: Cpu = field(default_factory=Cpu)
    python: Line = ""
    libc: Line = ""
    nvidia_driver: Line = ""
    gpus: Annotated[tuple[Mapping[str, Any], ...], Count(0, 1024)] = ()


@dataclass(frozen=True)
class ProbedFeature(Record):
    id: Id
    status: Status
    reason: Line = ""
    remedy: Line = ""
    probe: Line = ""
    failure_phase: Line = ""
    seconds: Seconds = 0.0
    evidence: Any = None

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.status != "passed" and not self.reason:
            yield "/reason", "must say why it did not pass"


@dataclass(frozen=True)
class HostProfile(Record):
    identity: HostIdentity
    features: Annotated[tuple[ProbedFeature, ...], Count(0, 1024)]
    started_unix: float
    completed_unix: float
    format: Literal[1] = 1
    kind: Literal["coldsnap-host-feature-profile"] = "coldsnap-host-feature-profile"

    def problems(self) -> Iterator[tuple[str, str]]:
        ids = [feature.id for feature in self.features]
        if len(set(ids)) != len(ids):
            yield "/features", "two features have one id"
