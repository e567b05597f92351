"""Cold starts against restores: the figures of each, and how they compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from coldsnap.render.columns import Cell, table
from coldsnap.render.palette import PLAIN, Palette
from coldsnap.render.phases import (
    Phase,
    Typical,
    note_of,
    phases_of,
    typical,
    until_first_token,
)
from coldsnap.render.quantities import fine, size, times

COLD: Final = "cold start"
RESTORE: Final = "restore"
_NAMED = (("coldsnap", "coldsnap"), ("CRIU", "criu"))
_SHOWN_PACKAGES: Final = ("torch", "triton", "numpy")
"""Shown of a unit's software beside the package that has the engine's name."""


@dataclass(frozen=True)
class Measured:
    """One cold start or restore of one unit."""

    kind: str
    """COLD or RESTORE."""
    host: str
    unit: str
    first_token_seconds: float
    run_seconds: float
    """The whole run, without the start of the command itself."""
    same_answer: bool | None = None
    phases: tuple[Phase, ...] = ()
    """What was done until the first token."""
    page_cache: str = "warm"
    """State that it began from: warm, dropped."""
    load: float = 0.0
    """Load average of this machine when it ended."""

    @classmethod
    def read(
        cls, kind: str, host: str, unit: str, outputs: Mapping[str, Any], run_seconds: float
    ) -> Measured:
        """From the outputs of a unit's steps; `timings` are all their envelopes."""
        same = outputs.get("same")
        envelopes = outputs.get("timings") or [outputs.get("timing")]
        return cls(
            kind=kind,
            host=host,
            unit=unit,
            first_token_seconds=float(outputs["first_token_seconds"]),
            run_seconds=run_seconds,
            same_answer=same if isinstance(same, bool) else None,
            phases=until_first_token(phases_of(envelopes)),
        )

    @property
    def between_seconds(self) -> float:
        """Of the time to the first token, what no phase tells of."""
        return max(0.0, self.first_token_seconds - _union(self.phases))

    def to_json(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in _PLAIN}
        return {**plain, "phases": [phase.to_json() for phase in self.phases]}


_PLAIN: Final = (
    "kind", "host", "unit", "first_token_seconds", "run_seconds", "same_answer", "page_cache",
    "load", "between_seconds",
)  # fmt: skip


def _union(phases: Sequence[Phase]) -> float:
    total = reached = 0.0
    for phase in sorted((p for p in phases if not p.depth), key=lambda p: p.start):
        end = phase.start + phase.seconds
        total += max(0.0, end - max(phase.start, reached))
        reached = max(reached, end)
    return total


@dataclass(frozen=True)
class Compared:
    """All measurements of one unit that began from one state of the page cache."""

    host: str
    unit: str
    page_cache: str
    cold: tuple[Measured, ...]
    restored: tuple[Measured, ...]

    @property
    def cold_page_cache(self) -> str:
        """State from which the cold starts began; not the restores' where none were made in it."""
        return self.cold[0].page_cache

    @property
    def ratio(self) -> float:
        """How many times faster the median restore is than the median cold start."""
        cold = median(item.first_token_seconds for item in self.cold)
        return cold / median(item.first_token_seconds for item in self.restored)

    @property
    def is_same(self) -> bool:
        return all(item.same_answer for item in self.restored)


def compared(measured: Sequence[Measured]) -> list[Compared]:
    """By host, unit and page cache; those without one of the two kinds are left out.

    Restores for which no cold start began from the same state stand against warm ones.
    """
    found = []
    for place in dict.fromkeys((item.host, item.unit) for item in measured):
        mine = [item for item in measured if (item.host, item.unit) == place]
        cold = [item for item in mine if item.kind == COLD]
        for state in dict.fromkeys(item.page_cache for item in mine if item.kind == RESTORE):
            restored = tuple(i for i in mine if i.kind == RESTORE and i.page_cache == state)
            same = tuple(item for item in cold if item.page_cache == state)
            other = tuple(item for item in cold if item.page_cache == "warm")
            if same or other:
                found.append(Compared(*place, state, same or other, restored))
    return found


def bench_text(
    units: Sequence[Compared], versions: Mapping[str, Any], palette: Palette = PLAIN
) -> str:
    """A table for each unit, and what it was measured with."""
    return "\n\n".join([*(_unit(item, palette) for item in units), _versions(versions, palette)])


def bench_json(
    units: Sequence[Compared], versions: Mapping[str, Any], *, complete: bool = True
) -> dict[str, Any]:
    return {
        "format": 2,
        "kind": "coldsnap-bench-cold-vs-restore",
        "complete": complete,
        "versions": dict(versions),
        "units": [
            {
                "host": item.host,
                "unit": item.unit,
                "page_cache": item.page_cache,
                "cold_page_cache": item.cold_page_cache,
                "ratio": round(item.ratio, 3),
                "same_answer": item.is_same,
                "cold_median_seconds": _median(item.cold),
                "restore_median_seconds": _median(item.restored),
                "phases": {
                    "cold": [_typical_json(one) for one in _typical(item.cold)],
                    "restored": [_typical_json(one) for one in _typical(item.restored)],
                },
                "cold": [one.to_json() for one in item.cold],
                "restored": [one.to_json() for one in item.restored],
            }
            for item in units
        ],
    }


def _typical(items: Sequence[Measured]) -> tuple[Typical, ...]:
    return typical([item.phases for item in items])


def _typical_json(one: Typical) -> dict[str, Any]:
    return {
        "path": list(one.path),
        "median_seconds": round(one.median, 6),
        "n": len(one.seconds),
        "note": note_of(one.example),
    }


def _median(items: Sequence[Measured]) -> float:
    return round(median(item.first_token_seconds for item in items), 6)


@dataclass(frozen=True)
class BenchRow:
    """One line of a table: a figure of every measurement."""

    name: str
    seconds: tuple[float, ...]
    depth: int = 0
    """0 for what is measured, 1 and more for its phases."""
    note: str = ""

    def cells(self) -> list[str]:
        """Median, least, most, count, note."""
        figures = (median(self.seconds), min(self.seconds), max(self.seconds))
        return [*(fine(value) for value in figures), str(len(self.seconds)), self.note]


def rows_of(item: Compared) -> list[BenchRow]:
    """The whole story of one unit: both totals, each with its phases by medians."""
    cold = "cold start to first token"
    if item.cold_page_cache != item.page_cache:
        cold += f" (page cache {item.cold_page_cache})"
    return [
        _total(cold, item.cold),
        *_phase_rows(item.cold),
        _total("restore to first token", item.restored),
        *_phase_rows(item.restored),
        BenchRow("whole run, cold start", tuple(one.run_seconds for one in item.cold)),
        BenchRow("whole run, restore", tuple(one.run_seconds for one in item.restored)),
    ]


def _total(name: str, items: Sequence[Measured]) -> BenchRow:
    return BenchRow(name, tuple(one.first_token_seconds for one in items))


def _phase_rows(items: Sequence[Measured]) -> list[BenchRow]:
    rows = [
        BenchRow(one.path[-1], one.seconds, len(one.path), note_of(one.example))
        for one in _typical(items)
    ]
    if rows:
        rows.append(BenchRow("between them", tuple(one.between_seconds for one in items), 1))
    return rows


def _unit(item: Compared, palette: Palette) -> str:
    same = palette.paint("yes", "good") if item.is_same else palette.paint("no", "error")
    head = (
        f" {palette.paint(f'{item.unit} on {item.host}', 'strong')}   "
        f"page cache {item.page_cache}   "
        f"{palette.paint(times(item.ratio), 'strong')}   same answer: {same}"
    )
    rows: list[list[str | Cell]] = [
        ["  " * row.depth + row.name, *row.cells()] for row in rows_of(item)
    ]
    header = ("", "median", "least", "most", "n", "")
    return head + "\n" + table(header, rows, palette, right=(1, 2, 3, 4), indent="   ")


def version_lines(versions: Mapping[str, Any]) -> list[str]:
    """What it was measured with: this program, each host, each unit's software."""
    named = [f"{name} {versions.get(key)}" for name, key in _NAMED if versions.get(key)]
    lines = [", ".join([*named, f"{versions.get('cores')} cores here"])]
    for host, facts in dict(versions.get("hosts") or {}).items():
        lines.append(f"{host}: {', '.join(host_words(facts))}")
    for unit, packages in dict(versions.get("software") or {}).items():
        if words := package_words(packages, str(versions.get("engine") or "")):
            lines.append(f"{unit}: {', '.join(words)}")
    lines.append(f"load average {' '.join(f'{value:.1f}' for value in versions.get('load', ()))}")
    return lines


def host_words(facts: Mapping[str, Any]) -> list[str]:
    """``kernel 6.18``, ``NVIDIA H200 (141 GiB)``, ..."""
    memory = [*(facts.get("gpu_memory_bytes") or ())]
    gpus = list(facts.get("gpus") or ())
    shown = [
        f"{name} ({size(memory[n])})" if n < len(memory) and memory[n] else str(name)
        for n, name in enumerate(gpus)
    ]
    driver = facts.get("nvidia_driver")
    words = [
        *shown,
        f"NVIDIA driver {driver}" if driver else "",
        str(facts.get("cpu") or ""),
        f"{facts['cores']} cores" if facts.get("cores") else "",
        f"kernel {facts['kernel']}" if facts.get("kernel") else "",
        f"Python {facts['python']}" if facts.get("python") else "",
    ]
    return [word for word in words if word]


def package_words(packages: Mapping[str, Any], engine: str) -> list[str]:
    """Versions of what serves (named like the engine) and of what it computes with."""
    serving = [name for name in packages if engine and name.startswith(engine)]
    return [f"{name} {packages[name]}" for name in (*serving, *_SHOWN_PACKAGES) if name in packages]


def _versions(versions: Mapping[str, Any], palette: Palette) -> str:
    return "\n".join(palette.paint(f" {line}", "dim") for line in version_lines(versions))
