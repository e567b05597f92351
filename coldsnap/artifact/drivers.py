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

TEMPLATE_FEATURE = "criu-process-template"
"""What parking and restoring a template needs; all that it needs where no GPU is involved."""


@dataclass(frozen=True)
class Qualification(Record):
    """Whether a driver was shown to work by the product's own commands, and where."""

    state: Literal["qualified", "unqualified"]
    reason: str
    """Where it was shown, or why not."""


QUALIFICATIONS: Mapping[str, Qualification] = {
    "criu": Qualification("qualified", "the reference engine and vLLM on CPU"),
    "c580": Qualification("qualified", "vLLM 0.24 on an H200, driver 580"),
    "n580": Qualification(
        "unqualified", "shown with vLLM on CPU; on an H200 only as far as the engine's memory check"
    ),
    "n610": Qualification(
        "unqualified", "no NVIDIA driver >= 610 was at hand; tested against a fake one"
    ),
}
"""Of the built-in drivers. One that is unqualified is taken when it is named, never by `auto`."""

PREFERENCE = ("n610", "c580", "n580")
"""Order of `auto` for units with devices: the newest first, and of one NVIDIA driver the one that
restores a started engine before the one that starts it again."""


def host_feature(driver: str, *, has_devices: bool) -> str:
    """The feature of a host's profile that a unit captured with `driver` needs there."""
    if driver == "n580" and not has_devices:
        return TEMPLATE_FEATURE
    return f"driver.{driver}"
