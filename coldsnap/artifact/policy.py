"""The policy of an operation request: process, weights, caches, capsule, compatibility."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from coldsnap.artifact.decode import Record
from coldsnap.artifact.rules import (
    AbsolutePath,
    Bytes,
    Count,
    Digest,
    Id,
    Line,
    RelativePath,
    Text,
)
from coldsnap.artifact.validation import SUFFIX, ValidationEvidence

CACHE_FOLDER = "/var/cache/coldsnap/runtime"
_SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr")

Repository = Annotated[
    str,
    Text(
        r"(?:[a-z0-9]+(?:[._:/-]+[a-z0-9]+)*)?",
        0,
        512,
        "a repository in lower case without tag or digest",
    ),
]


@dataclass(frozen=True)
class ProcessPolicy(Record):
    backend: Literal["cuda-criu"] = "cuda-criu"
    kv_discard: bool = True
    async_graphs: bool = True
    graph_policy: Literal[
        "", "preserve-exec", "recreate-from-plan", "preserve-nccl-exec", "disabled"
    ] = ""
    """Empty takes the driver's default."""
    shape_calibration: Literal["auto", "enabled", "disabled"] = "auto"
    artifact_scope: Literal["portable", "target-local"] = "portable"

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.shape_calibration == "enabled" and not self.async_graphs:
            yield "/shape_calibration", "enabled needs async_graphs"
        if self.graph_policy not in ("", "disabled") and not self.async_graphs:
            yield "/graph_policy", "needs async_graphs"


@dataclass(frozen=True)
class StagedPack(Record):
    """A payload pack that a manager has put on a host."""

    worker: Id
    path: AbsolutePath
    bytes: Bytes
    sha256: Digest
    validation: ValidationEvidence | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        evidence = self.validation
        if evidence is None:
            return
        if evidence.record != self.path + SUFFIX:
            yield "/validation/record", f"must be the pack's path and {SUFFIX}"
        if not evidence.device or not evidence.inode or evidence.size != self.bytes:
            yield "/validation", "does not describe this pack"


@dataclass(frozen=True)
class NativePolicy(Record):
    repository: Repository = ""
    revision: Line = ""
    files_by_worker: Annotated[Mapping[Id, RelativePath], Count(0, 65536, of_object=True)] = field(
        default_factory=dict
    )
    staged: Annotated[tuple[StagedPack, ...], Count(0, 65536)] = ()
    materialize: Literal["", "off", "async", "required"] = ""

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.repository and not self.revision:
            yield "/revision", "is needed with a repository"


@dataclass(frozen=True)
class RecoveryPolicy(Record):
    enabled: bool = True
    source: Literal["huggingface-safetensors", "safetensors"] = "huggingface-safetensors"
    loader_backend: Literal["direct", "buffered", "auto", "mmap", "torch"] = "auto"


@dataclass(frozen=True)
class WeightsPolicy(Record):
    mode: Literal["auto", "native", "recovery", "cache-only-auto"] = "auto"
    native: NativePolicy = field(default_factory=NativePolicy)
    recovery: RecoveryPolicy = field(default_factory=RecoveryPolicy)

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.mode != "native" and not self.recovery.enabled:
            yield "/recovery/enabled", f"must be true for mode {self.mode}"


@dataclass(frozen=True)
class StagedCache(Record):
    unit: Id
    path: AbsolutePath


@dataclass(frozen=True)
class CachePolicy(Record):
    seed: bool = True
    paths: Annotated[tuple[AbsolutePath, ...], Count(0, 64)] = (CACHE_FOLDER,)
    staged: Annotated[tuple[StagedCache, ...], Count(0, 4096)] = ()

    def problems(self) -> Iterator[tuple[str, str]]:
        if len(set(self.paths)) != len(self.paths):
            yield "/paths", "a path is given twice"
        for index, path in enumerate(self.paths):
            if path == "/" or any(path == top or path.startswith(top + "/") for top in _SYSTEM):
                yield f"/paths/{index}", "is a folder of the system"
            if any(path.startswith(other + "/") for other in self.paths):
                yield f"/paths/{index}", "lies in another one"
        units = [item.unit for item in self.staged]
        if len(set(units)) != len(units):
            yield "/staged", "a unit is given twice"
        if self.staged and CACHE_FOLDER not in self.paths:
            yield "/staged", f"needs the path {CACHE_FOLDER}"


@dataclass(frozen=True)
class CapsulePolicy(Record):
    repository: Repository = ""


@dataclass(frozen=True)
class CompatibilityPolicy(Record):
    enforce_captured_driver_floor: bool = True
    kernel: Literal["capability", "exact"] = "capability"


@dataclass(frozen=True)
class Policy(Record):
    process: ProcessPolicy = field(default_factory=ProcessPolicy)
    weights: WeightsPolicy = field(default_factory=WeightsPolicy)
    cache: CachePolicy = field(default_factory=CachePolicy)
    capsule: CapsulePolicy = field(default_factory=CapsulePolicy)
    compatibility: CompatibilityPolicy = field(default_factory=CompatibilityPolicy)
