"""What profiling found at capture, so that a restore need not look again; and when it must."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from typing import Any

VARIABLE = "COLDSNAP_STARTUP_PLAN"
"""Path of the plan; handed over to a restored template."""
MOST_SHORTFALL = 512 << 20
"""Bytes by which KV may shrink where the device has less free; beyond it, profiling runs."""
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class StartupPlan:
    """Of one worker. Identity first: it must be equal; then sizes in bytes."""

    vllm: str
    torch: str
    device: str
    """Name of the device; ``cpu`` where the worker has none."""
    capability: str
    config: str
    """vLLM's own digest of its configuration."""
    device_bytes: int
    """Memory of the whole device."""
    free_bytes: int
    """Free on it before the worker took anything."""
    requested_bytes: int
    """What the worker may take in all."""
    kv_bytes: int
    """What profiling left for KV."""
    graph_sizes: tuple[int, ...] = ()
    """Batch sizes whose graphs were captured, in tokens."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> StartupPlan:
        """Raises ValueError, KeyError or TypeError for what is not one."""
        if not isinstance(value, dict) or set(value) != {field.name for field in fields(cls)}:
            raise ValueError("it has other fields")
        sizes = tuple(int(size) for size in value["graph_sizes"])
        plan = cls(**{**value, "graph_sizes": sizes})
        numbers = (plan.device_bytes, plan.free_bytes, plan.requested_bytes, plan.kv_bytes, *sizes)
        texts = (plan.vllm, plan.torch, plan.device, plan.capability, plan.config)
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError("a size is no number of bytes")
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("an identity is no text")
        return plan


def read_plan(rank: int) -> tuple[StartupPlan | None, str]:
    """The plan of worker `rank`, or why there is none."""
    path = os.environ.get(VARIABLE, "")
    if not path:
        return None, "none was handed over"
    try:
        with open(path, "rb") as file:
            workers = json.loads(file.read(_MOST_BYTES))["workers"]
        return StartupPlan.from_json(workers[rank]), ""
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        return None, f"it cannot be read: {error}"


def planned_kv(plan: StartupPlan, here: StartupPlan) -> tuple[int, str]:
    """Bytes for KV, or 0 and why profiling must run again.

    Args:
        plan: what the capture found.
        here: what this worker knows before it profiles; its ``kv_bytes`` counts for nothing.
    """
    for name, what in _IDENTITY:
        was, found = getattr(plan, name), getattr(here, name)
        if was != found:
            return 0, f"{what} was {was}, it is {found}"
    if here.device_bytes < plan.device_bytes:
        return 0, f"the device has {here.device_bytes} bytes, it had {plan.device_bytes}"
    if here.requested_bytes < plan.requested_bytes:
        return 0, f"{here.requested_bytes} bytes may be taken, it were {plan.requested_bytes}"
    short = max(0, plan.free_bytes - here.free_bytes)
    # What was free beyond the request may be gone without harm.
    short = max(0, short - max(0, plan.free_bytes - plan.requested_bytes))
    if short > MOST_SHORTFALL or short >= plan.kv_bytes:
        return 0, f"{short} bytes fewer are free than at capture"
    return plan.kv_bytes - short, ""


_IDENTITY = (
    ("vllm", "vLLM"),
    ("torch", "torch"),
    ("device", "the device"),
    ("capability", "its compute capability"),
    ("config", "the configuration"),
    ("graph_sizes", "the list of graph sizes"),
)
