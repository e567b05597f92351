"""Snapshot drivers: the contract of each, as it stands in requests, artifacts and capabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from coldsnap.artifact.decode import Record
from coldsnap.artifact.rules import Count, Id, Natural

DriverId = Literal["criu", "c580", "n580", "n610"]


@dataclass(frozen=True)
class SnapshotDriver(Record):
    """What a driver captures and what a host must be able to do for it."""

    id: DriverId
    abi: Literal[1]
    capture_boundary: Id
    minimum_nvidia_driver_major: Natural
    """0 where no NVIDIA driver is involved."""
    base_requirements: Annotated[tuple[Id, ...], Count(1, 64)]
    """Ids of host features, sorted."""


@dataclass(frozen=True)
class DriverRef(Record):
    """A driver by name; ``auto`` never stands in a document."""

    id: DriverId


DRIVERS: Mapping[str, SnapshotDriver] = {
    driver.id: driver
    for driver in (
        SnapshotDriver("criu", 1, "live-cpu-process-tree", 0, ("criu-process-tree",)),
        SnapshotDriver(
            "c580",
            1,
            "initialized-cuda-process-state",
            580,
            (
                "criu-process-tree",
                "cuda-checkpoint-api",
                "cuda-checkpoint-roundtrip",
                "cuda-initialized-state",
            ),
        ),
        SnapshotDriver(
            "n580",
            1,
            "pre-cuda-process-template",
            580,
            ("criu-process-template", "cuda-fresh-state", "cuda-vmm-exact-address"),
        ),
        SnapshotDriver(
            "n610",
            1,
            "initialized-cuda-process-state",
            610,
            (
                "criu-process-tree",
                "cuda-checkpoint-api",
                "cuda-checkpoint-roundtrip",
                "cuda-classic-ipc",
                "cuda-initialized-state",
                "cuda-vmm-exact-address",
            ),
        ),
    )
}
"""The built-in contracts, ABI 1."""
