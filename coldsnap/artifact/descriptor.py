"""The descriptor of an artifact, format 9: what was captured, where it can go, every file's digest.

It is the config blob of the capsule's OCI manifest. What ColdSnap adds to the published format
stands under ``extensions``. `complete` makes one from what a capture gave; `read_descriptor`
checks one that came from a store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from coldsnap.artifact import canonical
from coldsnap.artifact.captured import (
    described_extensions,
    described_objects,
    described_payloads,
)
from coldsnap.artifact.decode import Record, decode, encode, parse
from coldsnap.artifact.drivers import DRIVERS, DriverId, SnapshotDriver
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.extensions import Extensions
from coldsnap.artifact.graph import Graph, RuntimeBindings, ShapeCalibration
from coldsnap.artifact.launch import Launch
from coldsnap.artifact.oci.media import MAX_DESCRIPTOR_BYTES
from coldsnap.artifact.rules import Count, Digest, Id, Line, Natural, Prose
from coldsnap.artifact.weights import (
    PAYLOAD_INDEX_ROLE,
    FileObject,
    Objects,
    Weights,
    index_path,
)


@dataclass(frozen=True)
class Feature(Record):
    id: Id


@dataclass(frozen=True)
class Requirements(Record):
    """Host features that a restore needs: the driver's and what the capture used beyond them."""

    features: Annotated[tuple[Feature, ...], Count(1, 256)]
    format: Literal[1] = 1

    def problems(self) -> Iterator[tuple[str, str]]:
        ids = [feature.id for feature in self.features]
        if ids != sorted(set(ids)):
            yield "/features", "must be sorted and unique"


@dataclass(frozen=True)
class CompatibleDevice(Record):
    slot: Natural
    gpu_name: Line
    compute_capability: Line


@dataclass(frozen=True)
class CompatibleUnit(Record):
    """The machine that a unit was captured on; admission decides what must match."""

    unit: Id
    architecture: Line
    kernel: Line = ""
    nvidia_driver_captured: Line = ""
    nvidia_driver_min: Line = ""
    cuda_userspace: Line = ""
    devices: Annotated[tuple[CompatibleDevice, ...], Count(0, 1024)] = ()


@dataclass(frozen=True)
class Compatibility(Record):
    units: Annotated[tuple[CompatibleUnit, ...], Count(1, 4096)]
    policy: Literal["placement-independent-v1"] = "placement-independent-v1"


@dataclass(frozen=True)
class ImageDriver(Record):
    id: DriverId
    abi: Literal[1]


@dataclass(frozen=True)
class CapsuleImage(Record):
    """The files of one unit, bound together by one digest."""

    unit: Id
    reference: Line
    digest: Digest
    """Of the canonical JSON of the unit's objects, sorted by path."""
    root: Line
    snapshot_driver: ImageDriver


@dataclass(frozen=True)
class Capsule(Record):
    images: Annotated[tuple[CapsuleImage, ...], Count(1, 4096)]
    objects: Objects

    def problems(self) -> Iterator[tuple[str, str]]:
        if not self.objects:
            yield "/objects", "must have at least one entry"
        paths = [item.path for item in self.objects]
        if len(set(paths)) != len(paths):
            yield "/objects", "two objects have one path"


@dataclass(frozen=True)
class AcceptanceRecord(Record):
    accepted: Literal[True]
    """An artifact whose answer was not accepted is never committed."""
    expected: Prose


@dataclass(frozen=True)
class Descriptor(Record):
    capture_id: Id
    request_sha256: Digest
    snapshot_driver: SnapshotDriver
    requires: Requirements
    launch: Launch
    compatibility: Compatibility
    capsule: Capsule
    weights: Weights
    acceptance: AcceptanceRecord
    graph: Graph | None = None
    runtime: RuntimeBindings = field(default_factory=RuntimeBindings)
    shape_calibration: ShapeCalibration | None = None
    extensions: Extensions = field(default_factory=Extensions)
    state: Literal["committed"] = "committed"
    format: Literal[9] = 9
    kind: Literal["coldsnap-snapshot-artifact"] = "coldsnap-snapshot-artifact"

    def problems(self) -> Iterator[tuple[str, str]]:
        yield from _driver(self)
        yield from _units(self)
        yield from _images(self)
        yield from _payloads(self)
        recovery = self.weights.recovery
        model = self.launch.model
        if (recovery.model_id, recovery.revision) != (model.id, model.revision):
            yield "/weights/recovery", "model and revision must be those of the launch"

    def objects(self) -> tuple[FileObject, ...]:
        """Every file: the capsule's, then the payload packs; shared packs once."""
        payloads = self.weights.model_payloads
        packs = {item.path: item for item in payloads.objects} if payloads else {}
        return self.capsule.objects + tuple(packs.values())


def read_descriptor(data: bytes, *, what: str = "descriptor") -> Descriptor:
    """The checked descriptor in `data`.

    Raises:
        ColdSnapError: ``artifact.invalid``, with a JSON pointer.
    """
    return decode(Descriptor, parse(data, limit=MAX_DESCRIPTOR_BYTES, what=what), what=what)


def complete(draft: Mapping[str, Any]) -> Descriptor:
    """A descriptor from a draft that may lack what follows from the rest.

    Objects, payloads, sizes and mapped files may stand as a checkpoint reports them (see
    `coldsnap.artifact.captured`); ``capsule.images`` is filled in, one per launch unit.

    Raises:
        ColdSnapError: ``artifact.invalid``, with a JSON pointer.
    """
    launch = decode(Launch, draft.get("launch"), what="descriptor: launch")
    unit = launch.units[0].id
    value = dict(draft)
    capsule, weights = _part(value, "capsule"), _part(value, "weights")
    objects = described_objects(_items(capsule), unit)
    payloads = _part(weights, "model_payloads")
    if payloads:
        worker = _workers_of(launch, unit)[0]
        packs, indexes = described_payloads(_items(payloads), unit, worker)
        objects += indexes
        weights["model_payloads"] = {**payloads, "objects": packs} if packs else None
    capsule["objects"] = objects
    if not capsule.get("images"):
        capsule["images"] = _draft_images(value, launch, objects)
    value |= {"weights": weights, "capsule": capsule}
    value["extensions"] = described_extensions(_part(value, "extensions"))
    return decode(Descriptor, value, what="descriptor")


def image_digest(objects: tuple[FileObject, ...], unit: str, workers: tuple[str, ...]) -> str:
    """What binds the files of one unit together, its workers' files included."""
    owners = {f"unit/{unit}", *(f"worker/{worker}" for worker in workers)}
    own = sorted((item for item in objects if item.owner in owners), key=lambda item: item.path)
    return canonical.digest(encode(own))


def _part(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    part = value.get(key) or {}
    if not isinstance(part, Mapping):
        raise ColdSnapError("artifact.invalid", f"descriptor: /{key}: must be an object")
    return dict(part)


def _items(part: Mapping[str, Any]) -> list[Any]:
    items = part.get("objects") or []
    if not isinstance(items, (list, tuple)):
        raise ColdSnapError("artifact.invalid", "descriptor: objects must be a list")
    return list(items)


def _draft_images(
    value: Mapping[str, Any], launch: Launch, objects: list[Any]
) -> list[dict[str, Any]]:
    """One image per launch unit; the digest is right if the draft is (else decode says why)."""
    driver = _part(value, "snapshot_driver")
    decoded = tuple(
        decode(FileObject, item, what=f"descriptor: capsule object {number}")
        for number, item in enumerate(objects)
    )
    return [
        {
            "unit": unit.id,
            "reference": f"{value.get('capture_id')}/{unit.id}",
            "digest": image_digest(decoded, unit.id, _workers_of(launch, unit.id)),
            "root": "/",
            "snapshot_driver": {"id": driver.get("id"), "abi": driver.get("abi")},
        }
        for unit in launch.units
    ]


def _workers_of(launch: Launch, unit: str) -> tuple[str, ...]:
    return tuple(w.id for w in launch.execution.workers if w.unit == unit) or (unit,)


def _driver(artifact: Descriptor) -> Iterator[tuple[str, str]]:
    driver = artifact.snapshot_driver
    if driver != DRIVERS[driver.id]:
        yield "/snapshot_driver", f"is not the contract of driver {driver.id}"
    needed = {feature.id for feature in artifact.requires.features}
    for name in driver.base_requirements:
        if name not in needed:
            yield "/requires/features", f"lacks {name}, which driver {driver.id} needs"


def _units(artifact: Descriptor) -> Iterator[tuple[str, str]]:
    units = [unit.id for unit in artifact.launch.units]
    if [unit.unit for unit in artifact.compatibility.units] != units:
        yield "/compatibility/units", "must be those of the launch, in order"
    if [image.unit for image in artifact.capsule.images] != units:
        yield "/capsule/images", "must be one for each unit of the launch, in order"


def _images(artifact: Descriptor) -> Iterator[tuple[str, str]]:
    driver = artifact.snapshot_driver
    for index, image in enumerate(artifact.capsule.images):
        workers = _workers_of(artifact.launch, image.unit)
        if image.digest != image_digest(artifact.capsule.objects, image.unit, workers):
            yield f"/capsule/images/{index}/digest", f"is not that of unit {image.unit}'s objects"
        if (image.snapshot_driver.id, image.snapshot_driver.abi) != (driver.id, driver.abi):
            yield f"/capsule/images/{index}/snapshot_driver", "is not the artifact's"


def _payloads(artifact: Descriptor) -> Iterator[tuple[str, str]]:
    payloads = artifact.weights.model_payloads
    if payloads is None:
        return
    owners = {item.owner.removeprefix("worker/") for item in payloads.objects}
    if owners != set(artifact.launch.workers()):
        yield "/weights/model_payloads/objects", "must be one pack for each worker"
    paths = {item.path: item for item in artifact.capsule.objects}
    for index, item in enumerate(payloads.objects):
        beside = paths.get(index_path(item.sha256))
        if beside is None or beside.role != PAYLOAD_INDEX_ROLE:
            where = f"/weights/model_payloads/objects/{index}"
            yield where, f"its index is not among the capsule's objects: {index_path(item.sha256)}"
