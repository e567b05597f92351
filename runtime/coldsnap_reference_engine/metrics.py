"""Prometheus text: counters, gauges and one kind of histogram."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

PREFIX = "coldsnap_reference_"
_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    """Seconds, in fixed buckets."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * (len(_BOUNDS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        with self._lock:
            self._counts[sum(seconds > bound for bound in _BOUNDS)] += 1
            self._sum += seconds

    def lines(self, name: str, help_text: str) -> list[str]:
        with self._lock:
            counts, total = list(self._counts), self._sum
        lines = _head(name, "histogram", help_text)
        cumulative = 0
        for bound, count in zip([*map(str, _BOUNDS), "+Inf"], counts, strict=True):
            cumulative += count
            lines.append(f'{PREFIX}{name}_bucket{{le="{bound}"}} {cumulative}')
        return [*lines, f"{PREFIX}{name}_sum {total!r}", f"{PREFIX}{name}_count {cumulative}"]


def counter(name: str, help_text: str, values: Mapping[str, float]) -> list[str]:
    """Labels in Prometheus form (``result="ok"``, or empty) -> value."""
    return _samples(f"{name}_total", "counter", help_text, values)


def gauge(name: str, help_text: str, values: Mapping[str, float]) -> list[str]:
    return _samples(name, "gauge", help_text, values)


def text(groups: Iterable[list[str]]) -> str:
    return "\n".join(line for group in groups for line in group) + "\n"


def _samples(name: str, kind: str, help_text: str, values: Mapping[str, float]) -> list[str]:
    lines = _head(name, kind, help_text)
    for labels, value in values.items():
        lines.append(f"{PREFIX}{name}{{{labels}}} {value}" if labels else f"{PREFIX}{name} {value}")
    return lines


def _head(name: str, kind: str, help_text: str) -> list[str]:
    return [f"# HELP {PREFIX}{name} {help_text}", f"# TYPE {PREFIX}{name} {kind}"]
