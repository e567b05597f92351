"""How a transfer went, out of what the library measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coldsnap_runtime.hydrate.structures import Engine, Metrics

_STAGES = ("file", "digest", "wait", "turn", "device")


@dataclass(frozen=True)
class Report:
    """How a transfer went. Seconds of the stages are summed over the threads."""

    bytes: int
    direct_bytes: int
    """Of these by O_DIRECT."""
    device_digest_bytes: int
    """Of these checked by the device."""
    seconds: float
    threads: int
    ring_bytes: int
    stages: Mapping[str, float]
    """``file``, ``digest``, ``wait`` for a slot (of that in the driver: ``copy_wait`` and
    ``digest_wait``), ``turn`` for a core, ``device``."""
    clock: Mapping[str, float]
    """By the clock since the call began: ``first`` bytes gone, then ``eighth_1`` to ``eighth_8``
    of them, and how long after the last of them the call ended (``drain``); and the
    ``longest_send``, which is long where the driver was busy with something else."""
    engine: str
    """``ring``, ``cufile``, or ``host``."""
    engine_reason: str
    """Why it was not the engine that was asked for; else empty."""

    @staticmethod
    def of(metrics: Metrics) -> Report:
        seconds = metrics.wall_ns / 1e9
        return Report(
            bytes=metrics.bytes,
            direct_bytes=metrics.direct_bytes,
            device_digest_bytes=metrics.device_digest_bytes,
            seconds=seconds,
            threads=metrics.threads,
            ring_bytes=metrics.ring_bytes,
            stages=stages_of(metrics),
            clock=clock_of(metrics),
            engine=Engine(metrics.engine).name.lower(),
            engine_reason=metrics.engine_reason.decode(errors="replace"),
        )


def stages_of(metrics: Metrics) -> dict[str, float]:
    """Seconds of each stage, summed over the threads; the driver's only where it was waited for."""
    stages = {name: getattr(metrics, f"{name}_ns") / 1e9 for name in _STAGES}
    for name in ("copy_wait", "digest_wait"):
        if value := getattr(metrics, f"{name}_ns"):
            stages[name] = value / 1e9
    return stages


def clock_of(metrics: Metrics) -> dict[str, float]:
    """See `Report.clock`; empty where nothing was moved or several parts were."""
    marks = list(metrics.mark_ns)
    if not marks[-1]:
        return {}
    found = {"first": metrics.first_ns / 1e9}
    found |= {f"eighth_{i}": mark / 1e9 for i, mark in enumerate(marks, 1)}
    found["drain"] = max(0.0, (metrics.wall_ns - marks[-1]) / 1e9)
    if metrics.longest_send_ns:
        found["longest_send"] = metrics.longest_send_ns / 1e9
    return found
