"""The capability document, format 1: what this build can do, for managers that drive it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal

import coldsnap
from coldsnap.artifact.decode import Record
from coldsnap.artifact.drivers import DRIVERS, QUALIFICATIONS, SnapshotDriver
from coldsnap.artifact.receipt import REPLAY, Operation, ReplaySemantics
from coldsnap.artifact.rules import Count, Id, Line, Natural

Formats = Annotated[tuple[Natural, ...], Count(1, 16)]


@dataclass(frozen=True)
class Protocols(Record):
    request_format: Natural = 4
    accepted_request_formats: Formats = (4,)
    artifact_format: Natural = 9
    accepted_artifact_formats: Formats = (9,)
    receipt_format: Natural = 2
    timing_format: Natural = 1
    timing_event_format: Natural = 1
    payload_validation_format: Natural = 1
    payload_pack_format: Natural = 1
    runtime_pack_abi: Natural = 1


@dataclass(frozen=True)
class OperationCapability(Record):
    operation: Operation
    replay_semantics: ReplaySemantics
    prepare_only: bool


@dataclass(frozen=True)
class EngineCapability(Record):
    """An engine pack that is installed."""

    engine: Id
    package: Line
    version: Line
    operations: Annotated[tuple[Operation, ...], Count(0, 16)]


@dataclass(frozen=True)
class DriverCapability(Record):
    driver: SnapshotDriver
    state: Literal["qualified", "unqualified"]
    reason: Line = ""
    """Where it was shown to work, or why it is unqualified."""


@dataclass(frozen=True)
class Build(Record):
    name: Line = "coldsnap"
    version: Line = coldsnap.__version__


@dataclass(frozen=True)
class Capabilities(Record):
    engine_adapters: Annotated[tuple[EngineCapability, ...], Count(0, 256)]
    snapshot_drivers: Annotated[tuple[DriverCapability, ...], Count(1, 16)]
    operations: Annotated[tuple[OperationCapability, ...], Count(1, 16)]
    host_transports: Annotated[tuple[Id, ...], Count(1, 16)]
    stores: Annotated[tuple[Id, ...], Count(1, 16)]
    features: Annotated[tuple[Id, ...], Count(0, 64)]
    controller: Build = field(default_factory=Build)
    protocols: Protocols = field(default_factory=Protocols)
    format: Literal[1] = 1
    kind: Literal["coldsnap-controller-capabilities"] = "coldsnap-controller-capabilities"


def describe_capabilities(
    engines: Iterable[EngineCapability],
    *,
    operations: Iterable[Operation] = ("capture", "restore"),
    prepare_only: bool = False,
    transports: Iterable[str] = ("local", "ssh", "docker"),
    features: Iterable[str] = (),
) -> Capabilities:
    """The document of this build.

    Args:
        engines: what the installed packs bring.
        operations: those that the command line runs from a request.
        prepare_only: whether a restore can stop before it evicts anything.
        transports: how hosts are reached.
        features: names of further abilities.
    """
    return Capabilities(
        engine_adapters=tuple(engines),
        snapshot_drivers=tuple(
            DriverCapability(driver, **vars(QUALIFICATIONS[driver.id]))
            for driver in DRIVERS.values()
        ),
        operations=tuple(
            OperationCapability(name, REPLAY[name], prepare_only and name == "restore")
            for name in operations
        ),
        host_transports=tuple(transports),
        stores=("oci-layout",),
        features=tuple(sorted(features)),
    )
