"""Whether an artifact can be restored on a host: identity must match, placement may differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coldsnap.sdk import ColdSnapError
from coldsnap_core.restore.spec import RestoreSpec


def admit(descriptor: Mapping[str, Any], identity: Mapping[str, Any], where: str) -> None:
    """Refuse before anything is touched.

    Raises:
        ColdSnapError: ``restore.architecture-differs``, ``restore.cpu-features-missing``,
            ``gpu.driver-missing``, ``gpu.driver-too-old``, ``gpu.model-differs``,
            ``gpu.capability-differs``.
    """
    architecture = str(descriptor.get("architecture") or "")
    found = str(identity.get("architecture") or "")
    if architecture and found and architecture != found:
        raise ColdSnapError(
            "restore.architecture-differs",
            f"captured on {architecture}, this host is {found}",
            where,
            remedy="restore on the captured architecture, or capture here",
        )
    captured = set(descriptor.get("cpu_flags") or ())
    present = set((identity.get("cpu") or {}).get("flags") or ())
    missing = sorted(captured - present) if present else []
    if missing:
        raise ColdSnapError(
            "restore.cpu-features-missing",
            f"the CPU lacks {len(missing)} features that the captured process may use",
            where,
            details=(", ".join(missing[:12]),),
            cause="libraries choose their code by CPU features once, at start",
            remedy="restore on a CPU that has them, or capture on the oldest CPU of the fleet",
        )
    if devices := descriptor.get("devices"):
        _admit_driver(str(descriptor.get("nvidia_driver_min") or ""), identity, where)
        for device in devices:
            _admit_gpu(device, identity.get("gpus") or (), where)


def admit_capsule(seen: Mapping[str, Any], where: str) -> None:
    """See that every file of the capsule is in the store, in its size.

    Raises:
        ColdSnapError: ``store.blob-missing``, ``store.blob-differs``.
    """
    if fault := seen.get("capsule_fault"):
        error = ColdSnapError.from_json(fault)
        error.where = error.where or where
        raise error


def admit_payload(spec: RestoreSpec, seen: Mapping[str, Any], where: str) -> str:
    """What a preview says of a payload that is not as it was captured; empty for a sound one.

    Raises:
        ColdSnapError: ``store.blob-missing``, ``store.blob-differs``, ``store.blob-quarantined``
            where no other provider is allowed.
    """
    fault = seen.get("payload_fault")
    if not fault or spec.provider == "recovery":
        return ""
    if spec.verify == "full" and fault["state"] == "quarantined":
        return ", quarantined: every byte is read again"
    if spec.provider == "native":
        error = ColdSnapError.from_json(fault["error"])
        error.where = error.where or where
        raise error
    return f" {fault['state']}: weights from the model's files (recovery)"


def _admit_driver(floor: str, identity: Mapping[str, Any], where: str) -> None:
    found = str(identity.get("nvidia_driver") or "")
    if not found:
        raise ColdSnapError(
            "gpu.driver-missing",
            "this host has no NVIDIA driver, and the unit was captured with CUDA state",
            where,
            remedy="restore it on a host with the GPU that it was captured on",
        )
    if floor and _major(found) < _major(floor):
        raise ColdSnapError(
            "gpu.driver-too-old",
            f"NVIDIA driver {found} is older than {floor}",
            where,
            remedy=f"install an NVIDIA driver >= {floor}",
        )


def _admit_gpu(device: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]], where: str) -> None:
    """Some GPU must be of the captured model; which one, and its memory, the target looks at."""
    name, wanted = str(device.get("gpu_name")), str(device.get("compute_capability"))
    same = [gpu for gpu in gpus if gpu.get("name") == name]
    details = tuple(f"GPU {gpu.get('index')}: {gpu.get('name')}" for gpu in gpus)
    if not same:
        raise ColdSnapError(
            "gpu.model-differs",
            f"captured on {name}, and no GPU of this host is one",
            where,
            details=details,
            remedy="restore on a GPU of the captured model, or capture on this one",
        )
    if all(gpu.get("compute_capability") != wanted for gpu in same):
        raise ColdSnapError(
            "gpu.capability-differs",
            f"captured on compute capability {wanted}, which no GPU of this host has",
            where,
            details=details,
            remedy="restore on a GPU of the captured model, or capture on this one",
        )


def _major(version: str) -> int:
    head = version.partition(".")[0]
    return int(head) if head.isdigit() else 0
