"""The host feature profile, format 1: what a host can do, as measured, and who may go there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from coldsnap.artifact.decode import Record, decode
from coldsnap.artifact.descriptor import Descriptor
from coldsnap.artifact.drivers import host_feature
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

    def feature(self, name: str) -> ProbedFeature:
        """The feature of that id; one that was not probed is unqualified."""
        for feature in self.features:
            if feature.id == name:
                return feature
        return ProbedFeature(name, "unqualified", "it was not probed")


def read_profile(value: Any) -> HostProfile:
    """The checked profile in a parsed JSON value.

    Raises:
        ColdSnapError: ``profile.invalid``.
    """
    return decode(HostProfile, value, what="host profile", code="profile.invalid")


def obstacles(descriptor: Descriptor, profile: HostProfile) -> list[str]:
    """Why this artifact cannot be restored on that host, one line each; empty if it can."""
    found: list[str] = []
    for unit in descriptor.compatibility.units:
        here = profile.identity.architecture
        if unit.architecture and here and unit.architecture != here:
            found.append(f"unit {unit.unit} was captured on {unit.architecture}, this is {here}")
    lacking = sorted(set(descriptor.extensions.cpu_flags) - set(profile.identity.cpu.flags))
    if lacking:
        found.append(f"the CPU lacks {', '.join(lacking)}")
    has_devices = any(unit.devices for unit in descriptor.compatibility.units)
    needed = host_feature(descriptor.snapshot_driver.id, has_devices=has_devices)
    driver = profile.feature(needed)
    if driver.status != "passed":
        found.append(f"snapshot driver {descriptor.snapshot_driver.id}: {driver.reason}")
    return found
