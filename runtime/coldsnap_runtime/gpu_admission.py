"""Whether this host's GPUs can take a captured unit, asked before anything is started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.drivers import DRIVERS
from coldsnap.artifact.errors import ColdSnapError

if TYPE_CHECKING:
    from coldsnap_runtime.gpus import Gpu, Gpus

_DRIVER_FLOOR = 580
_ROOM = 256 << 20
"""Bytes beside what was measured: contexts differ a little from driver to driver."""
_NVML_SLACK = 0.99


def admit_gpus(
    captured: dict[str, Any], here: Gpus, devices: Sequence[int] = ()
) -> tuple[tuple[str, str], ...]:
    """Pairs of GPU UUIDs (captured, here); empty where they are the same ones.

    Args:
        captured: the ``cuda`` part of a capture.
        here: the GPUs of this host.
        devices: index of the GPU for each captured one, in order; empty prefers the captured
            ones, then any of the same model with room.

    Raises:
        ColdSnapError: ``gpu.driver-missing``, ``gpu.driver-too-old``, ``gpu.missing``,
            ``gpu.model-differs``, ``gpu.capability-differs``, ``gpu.memory-short``.
    """
    _require_driver(here, _floor(captured))
    gpus: list[dict[str, Any]] = list(captured.get("gpus") or ())
    if devices and len(devices) != len(gpus):
        raise ColdSnapError(
            "gpu.missing",
            f"the unit was captured with {len(gpus)} GPU(s), and {len(devices)} are given",
            remedy="give the unit as many devices: in the plan as it was captured with",
        )
    needed = _needed(captured) // max(1, len(gpus))
    pairs: list[tuple[str, str]] = []
    for slot, old in enumerate(gpus):
        taken = {new for _, new in pairs}
        new = _choose(slot, old, here, devices, taken)
        _require_same(old, new)
        _require_memory(new, needed)
        pairs.append((str(old["uuid"]), new.uuid))
    return tuple(pairs) if any(old != new for old, new in pairs) else ()


def placed_gpus(
    captured: dict[str, Any], here: Gpus, devices: Sequence[int] = ()
) -> tuple[int, ...]:
    """Indices of the GPUs for a unit that starts fresh, in order; raises as `admit_gpus`."""
    pairs = dict(admit_gpus(captured, here, devices))
    uuids = [str(gpu["uuid"]) for gpu in captured.get("gpus") or ()]
    found = [here.by_uuid(pairs.get(uuid, uuid)) for uuid in uuids]
    return tuple(gpu.index for gpu in found if gpu is not None)


def admit_launch(visible: str, share: float, here: Gpus) -> None:
    """Whether an engine that demands a part of each device's memory finds it free.

    Args:
        visible: the unit's ``CUDA_VISIBLE_DEVICES``, indices or UUIDs.
        share: part of the device's memory, 0 to 1.
        here: the GPUs of this host.

    Raises:
        ColdSnapError: ``gpu.driver-missing``, ``gpu.missing``, ``gpu.memory-short``.
    """
    if not share or not visible:
        return
    if not here.driver:
        raise ColdSnapError(
            "gpu.driver-missing",
            f"this host has no NVIDIA driver, and the unit wants GPU {visible}",
            details=("nothing was started",),
            remedy="launch it on a host with a GPU, or take devices: out of the plan",
        )
    for name in visible.split(","):
        gpu = here.by_index(int(name)) if name.isdigit() else here.by_uuid(name)
        if gpu is None:
            raise ColdSnapError(
                "gpu.missing",
                f"this host has no GPU {name}",
                details=tuple(f"GPU {gpu.index}: {gpu.name} {gpu.uuid}" for gpu in here.found),
                remedy="name others with devices: in the plan",
            )
        # CUDA counts a little less than NVML as the whole: what is that close, the engine judges.
        _require_memory(gpu, int(gpu.memory_total * share * _NVML_SLACK), room=0)


def _needed(captured: dict[str, Any]) -> int:
    process = int(captured.get("process_bytes") or 0)
    return process + int(captured.get("engine_bytes") or 0)


def _floor(captured: dict[str, Any]) -> int:
    """The NVIDIA driver that the snapshot driver of a capture needs."""
    known = DRIVERS.get(str(captured.get("snapshot_driver")))
    return known.minimum_nvidia_driver_major if known else _DRIVER_FLOOR


def _require_driver(here: Gpus, floor: int) -> None:
    if not here.driver:
        raise ColdSnapError(
            "gpu.driver-missing",
            "this host has no NVIDIA driver, and the unit was captured with CUDA state",
            remedy="restore it on a host with the GPU that it was captured on",
        )
    major = here.driver.partition(".")[0]
    if not major.isdigit() or int(major) < floor:
        raise ColdSnapError(
            "gpu.driver-too-old",
            f"NVIDIA driver {here.driver} is older than {floor}",
            remedy=f"install an NVIDIA driver >= {floor}",
        )


def _choose(
    slot: int, old: dict[str, Any], here: Gpus, devices: Sequence[int], taken: set[str]
) -> Gpu:
    found: Gpu | None
    if devices:
        found, wanted = here.by_index(devices[slot]), f"GPU {devices[slot]}"
    else:
        same = [gpu for gpu in here.found if gpu.name == old["name"] and gpu.uuid not in taken]
        roomiest = max(same or here.found, key=lambda gpu: gpu.memory_free, default=None)
        found, wanted = here.by_uuid(str(old["uuid"])) or roomiest, f"a GPU like {old['name']}"
    if found is None or found.uuid in taken:
        raise ColdSnapError(
            "gpu.missing",
            f"this host has no {wanted} for device {slot} of the unit",
            details=tuple(f"GPU {gpu.index}: {gpu.name} {gpu.uuid}" for gpu in here.found),
            remedy="restore on a host that has it, or name others with devices: in the plan",
        )
    return found


def _require_same(old: dict[str, Any], new: Gpu) -> None:
    if new.compute_capability != old["compute_capability"]:
        raise ColdSnapError(
            "gpu.capability-differs",
            f"captured on compute capability {old['compute_capability']}, "
            f"GPU {new.index} has {new.compute_capability}",
            remedy="restore on a GPU of the captured model, or capture on this one",
        )
    if new.name != old["name"]:
        raise ColdSnapError(
            "gpu.model-differs",
            f"captured on {old['name']}, GPU {new.index} is {new.name}",
            remedy="restore on a GPU of the captured model, or capture on this one",
        )


def _require_memory(gpu: Gpu, needed: int, room: int = _ROOM) -> None:
    if gpu.memory_free >= needed + room:
        return
    holders = [f"process {pid} holds {size / 2**30:.1f} GiB" for pid, size in gpu.holders]
    raise ColdSnapError(
        "gpu.memory-short",
        f"GPU {gpu.index} has {gpu.memory_free / 2**30:.1f} GiB free, "
        f"the unit needs {(needed + room) / 2**30:.1f}",
        details=(*holders, "nothing was started"),
        remedy="stop what holds the memory, or choose another GPU with devices:",
    )
