"""Cold starts against restores: the figures of each, and how they compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from coldsnap.render.columns import Cell, table
from coldsnap.render.palette import PLAIN, Palette
from coldsnap.render.quantities import duration, times
from coldsnap.render.report.model import top_spans

_NAMED = (("coldsnap", "coldsnap"), ("CRIU", "criu"))


@dataclass(frozen=True)
class Measured:
    """One cold start or restore of one unit."""

    kind: str
    """``cold start`` or ``restore``."""
    host: str
    unit: str
    first_token_seconds: float
    run_seconds: float
    """The whole run, without the start of the command itself."""
    same_answer: bool | None = None
    spans: tuple[tuple[str, float], ...] = ()
    """(name, seconds) of what the restore did, in order."""
    load: float = 0.0
    """Load average of this machine when it ended."""

    @classmethod
    def read(
        cls, kind: str, host: str, unit: str, outputs: Mapping[str, Any], run_seconds: float
    ) -> Measured:
        """From the outputs of a unit's steps, the later over the earlier ones."""
        same = outputs.get("same")
        return cls(
            kind=kind,
            host=host,
            unit=unit,
            first_token_seconds=float(outputs["first_token_seconds"]),
            run_seconds=run_seconds,
            same_answer=same if isinstance(same, bool) else None,
            spans=top_spans(outputs.get("timing")),
        )


@dataclass(frozen=True)
class Compared:
    """All measurements of one unit."""

    host: str
    unit: str
    cold: tuple[Measured, ...]
    restored: tuple[Measured, ...]

    @property
    def ratio(self) -> float:
        """How many times faster the median restore is than the median cold start."""
        cold = median(item.first_token_seconds for item in self.cold)
        return cold / median(item.first_token_seconds for item in self.restored)

    @property
    def is_same(self) -> bool:
        return all(item.same_answer for item in self.restored)


def compared(measured: Sequence[Measured]) -> list[Compared]:
    """By host and unit; those without one of the two kinds are left out."""
    places = dict.fromkeys((item.host, item.unit) for item in measured)
    found = []
    for host, unit in places:
        mine = [item for item in measured if (item.host, item.unit) == (host, unit)]
        cold = tuple(item for item in mine if item.kind == "cold start")
        restored = tuple(item for item in mine if item.kind == "restore")
        if cold and restored:
            found.append(Compared(host, unit, cold, restored))
    return found


def bench_text(
    units: Sequence[Compared], versions: Mapping[str, Any], palette: Palette = PLAIN
) -> str:
    """A table for each unit, and what it was measured with."""
    return "\n\n".join([*(_unit(item, palette) for item in units), _versions(versions, palette)])


def bench_json(units: Sequence[Compared], versions: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "format": 1,
        "kind": "coldsnap-bench-cold-vs-restore",
        "versions": dict(versions),
        "units": [
            {
                "host": item.host,
                "unit": item.unit,
                "ratio": round(item.ratio, 3),
                "same_answer": item.is_same,
                "cold_median_seconds": _median(item.cold),
                "restore_median_seconds": _median(item.restored),
                "cold": [asdict(one) for one in item.cold],
                "restored": [asdict(one) for one in item.restored],
            }
            for item in units
        ],
    }


def _median(items: Sequence[Measured]) -> float:
    return round(median(item.first_token_seconds for item in items), 6)


def _unit(item: Compared, palette: Palette) -> str:
    same = palette.paint("yes", "good") if item.is_same else palette.paint("no", "error")
    head = (
        f" {palette.paint(f'{item.unit} on {item.host}', 'strong')}   "
        f"{palette.paint(times(item.ratio), 'strong')}   same answer: {same}"
    )
    rows = [
        _row("cold start to first token", [one.first_token_seconds for one in item.cold]),
        _row("restore to first token", [one.first_token_seconds for one in item.restored]),
        *(_row(f"  {name}", seconds) for name, seconds in _parts(item.restored).items()),
        _row("whole run, cold start", [one.run_seconds for one in item.cold]),
        _row("whole run, restore", [one.run_seconds for one in item.restored]),
    ]
    header = ("", "median", "least", "most", "n")
    return head + "\n" + table(header, rows, palette, right=(1, 2, 3, 4), indent="   ")


def _row(name: str, seconds: Sequence[float]) -> list[str | Cell]:
    figures = (median(seconds), min(seconds), max(seconds))
    return [name, *(duration(value) for value in figures), str(len(seconds))]


def _parts(items: Sequence[Measured]) -> dict[str, list[float]]:
    """Span -> its seconds in each restore; equal names within one restore are added."""
    found: dict[str, list[float]] = {}
    for item in items:
        added: dict[str, float] = {}
        for name, seconds in item.spans:
            added[name] = added.get(name, 0.0) + seconds
        for name, seconds in added.items():
            found.setdefault(name, []).append(seconds)
    return found


def _versions(versions: Mapping[str, Any], palette: Palette) -> str:
    named = [f"{name} {versions.get(key)}" for name, key in _NAMED if versions.get(key)]
    lines = [", ".join([*named, f"{versions.get('cores')} cores here"])]
    for host, facts in dict(versions.get("hosts") or {}).items():
        words = [f"kernel {facts['kernel']}", f"python {facts['python']}", str(facts["cpu"])]
        lines.append(f"{host}: {', '.join(word for word in (*words, *facts['gpus']) if word)}")
    lines.append(f"load average {' '.join(f'{value:.1f}' for value in versions.get('load', ()))}")
    return "\n".join(palette.paint(f" {line}", "dim") for line in lines)
