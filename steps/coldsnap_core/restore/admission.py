"""Whether an artifact can be restored on a host: identity must match, placement may differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coldsnap.sdk import ColdSnapError


def admit(descriptor: Mapping[str, Any], identity: Mapping[str, Any], where: str) -> None:
    """Refuse before anything is touched.

    Raises:
        ColdSnapError: ``restore.architecture-differs``, ``restore.cpu-features-missing``.
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
