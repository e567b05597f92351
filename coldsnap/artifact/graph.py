"""CUDA graphs, shape calibration and runtime bindings in an artifact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from coldsnap.artifact import canonical
from coldsnap.artifact.decode import Record
from coldsnap.artifact.rules import Count, Digest, Id, Line, Natural, Owner, QualifiedName, Seconds

GraphPolicy = Literal["preserve-exec", "recreate-from-plan", "preserve-nccl-exec", "disabled"]


@dataclass(frozen=True)
class ResourceAudit(Record):
    """What the graphs hold on to."""

    format: Literal[1] = 1
    unknown_dependencies: bool = False
    nccl_communicators: Natural = 0
    registered_windows: Natural = 0
    device_api: bool = False
    external_semaphores: Natural = 0
    provider_owned_allocations: Natural = 0


@dataclass(frozen=True)
class GraphRecipe(Record):
    """How the engine captures its graphs again."""

    engine: Id
    mode: Literal["engine-native-async", "engine-native-retained", "disabled"]
    plan_sha256: Digest
    shape_calibration_policy: Line = ""
    calibration_units: Annotated[tuple[Id, ...], Count(0, 4096)] = ()
    format: Literal[1] = 1
    kind: Literal["coldsnap-engine-graph-recipe"] = "coldsnap-engine-graph-recipe"


@dataclass(frozen=True)
class Graph(Record):
    policy_requested: GraphPolicy
    policy_effective: GraphPolicy
    decision: Literal[
        "requested_policy_is_supported",
        "provider_reconstructs_communicator",
        "graph_exec_preservation_is_unqualified",
        "qualified_exact_nccl_in_place",
    ]
    resource_audit: ResourceAudit = field(default_factory=ResourceAudit)
    recipe: GraphRecipe | None = None
    format: Literal[1] = 1


@dataclass(frozen=True)
class RuntimeBinding(Record):
    """A provider outside the engine that the capture depends on, such as NCCL."""

    owner: Owner
    kind: QualifiedName
    schema: QualifiedName
    digest: Digest
    payload: Mapping[str, Any]

    def problems(self) -> Iterator[tuple[str, str]]:
        if canonical.digest(self.payload) != self.digest:
            yield "/digest", "is not that of the payload"


@dataclass(frozen=True)
class RuntimeBindings(Record):
    bindings: Annotated[tuple[RuntimeBinding, ...], Count(0, 4096)] = ()


@dataclass(frozen=True)
class CalibratedUnit(Record):
    unit: Id
    engine: Id
    planned_shapes: Natural
    warmed_shapes: Natural
    seconds: Seconds
    evidence: Mapping[str, Any]

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.warmed_shapes != self.planned_shapes:
            yield "/warmed_shapes", "must equal planned_shapes"


@dataclass(frozen=True)
class ShapeCalibration(Record):
    units: Annotated[tuple[CalibratedUnit, ...], Count(1, 4096)]
    policy: Literal["engine-owned-v1"] = "engine-owned-v1"
