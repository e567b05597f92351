"""Phases of a start: what a timing envelope says, on an axis that begins at its first span.

Envelopes come from hosts: what does not fit is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from coldsnap.render.quantities import duration, rate, size

_MAX_SPANS: Final = 2048
_MAX_DEPTH: Final = 8
_FIRST_TOKEN: Final = "first-token"  # noqa: S105 - the name of a span
_SHOWN_ATTRIBUTES: Final = (
    "rung", "provider", "threads", "pages", "chunks", "reason",
)  # fmt: skip


@dataclass(frozen=True)
class Phase:
    path: tuple[str, ...]
    """Names from the outermost span down to this one."""
    start: float
    """Seconds since the first span of the start."""
    seconds: float
    ok: bool = True
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.path[-1]

    @property
    def depth(self) -> int:
        return len(self.path) - 1

    @property
    def bytes(self) -> int:
        text = self.attributes.get("bytes", "")
        return int(text) if text.isdecimal() and len(text) < 19 else 0  # noqa: PLR2004

    def to_json(self) -> dict[str, Any]:
        return {
            "path": list(self.path),
            "start": round(self.start, 6),
            "seconds": round(self.seconds, 6),
            "ok": self.ok,
            "attributes": dict(self.attributes),
        }


def phases_of(envelopes: Iterable[Any]) -> tuple[Phase, ...]:
    """All spans of envelopes of one host's clock, once each, in order of their start."""
    found: dict[tuple[Any, ...], Phase] = {}
    for envelope in envelopes:
        spans = _maps(envelope.get("spans")) if isinstance(envelope, Mapping) else []
        by_id = {span.get("id"): span for span in spans[:_MAX_SPANS]}
        for span in by_id.values():
            start, seconds = (
                number(span.get("start_offset_seconds")),
                number(span.get("duration_seconds")),
            )
            if start is None or seconds is None:
                continue
            path = _path(span, by_id)
            ok = span.get("status") != "error"
            phase = Phase(path, start, seconds, ok, texts(span.get("attributes")))
            # Two verbs may tell of the same span: a restore that went through to the acceptance.
            found.setdefault((path, round(start, 4), round(seconds, 4)), phase)
    ordered = sorted(found.values(), key=lambda phase: (phase.start, phase.depth))
    first = ordered[0].start if ordered else 0.0
    return tuple(
        Phase(p.path, p.start - first, p.seconds, p.ok, p.attributes) for p in ordered
    )  # fmt: skip


def recorded_phases(value: Any) -> tuple[Phase, ...]:
    """Those of a cold start that a capture carries: ``{"phases": [{name, start, ...}]}``."""
    phases: list[Phase] = []
    stack: list[str] = []
    for item in _maps(value.get("phases"))[:_MAX_SPANS] if isinstance(value, Mapping) else ():
        start, seconds, depth = (number(item.get(k)) for k in ("start", "seconds", "depth"))
        if start is None or seconds is None:
            continue
        del stack[min(int(depth or 0), _MAX_DEPTH) :]
        stack.append(str(item.get("name"))[:64])
        phases.append(Phase(tuple(stack), max(0.0, start), max(0.0, seconds)))
    return tuple(phases)


def until_first_token(phases: Sequence[Phase]) -> tuple[Phase, ...]:
    """Those that begin before the first token is there; all if it is not among them."""
    ends = [phase.start + phase.seconds for phase in phases if phase.name == _FIRST_TOKEN]
    return tuple(phase for phase in phases if not ends or phase.start < ends[0])


def note_of(phase: Phase) -> str:
    """``16 GiB, 43 GB/s, native``."""
    words = []
    if phase.bytes and phase.seconds > 0:
        words += [size(phase.bytes), rate(phase.bytes / phase.seconds)]
    for name, text in phase.attributes.items():
        if name.endswith("_seconds") and (value := _float(text)) is not None:
            words.append(f"{name.removesuffix('_seconds').replace('_', ' ')} {duration(value)}")
        elif name in _SHOWN_ATTRIBUTES and text:
            words.append(text if name in ("rung", "provider") else
                         f"{text} {name}" if text.isdecimal() else f"{name}: {text}")  # fmt: skip
    return ", ".join(words)


@dataclass(frozen=True)
class Typical:
    """A phase over several starts."""

    path: tuple[str, ...]
    seconds: tuple[float, ...]
    """Of each start that had it."""
    example: Phase
    """The phase in the start whose time is nearest to the median."""

    @property
    def median(self) -> float:
        return median(self.seconds)


def typical(starts: Sequence[Sequence[Phase]]) -> tuple[Typical, ...]:
    """Phases by their path; of equal ones within a start, those side by side count once."""
    found: dict[tuple[str, ...], list[tuple[float, Phase]]] = {}
    for phases in starts:
        mine: dict[tuple[str, ...], list[Phase]] = {}
        for phase in phases:
            mine.setdefault(phase.path, []).append(phase)
        for path, group in mine.items():
            found.setdefault(path, []).append((_covered(group), group[0]))
    ordered = sorted(found, key=lambda path: _place(path, starts))
    result = []
    for path in ordered:
        seconds = tuple(value for value, _ in found[path])
        middle = median(seconds)
        example = min(found[path], key=lambda item: abs(item[0] - middle))[1]
        result.append(Typical(path, seconds, example))
    return tuple(result)


def _covered(phases: Sequence[Phase]) -> float:
    """Seconds during which at least one of the phases ran."""
    total, reached = 0.0, -1.0
    for phase in sorted(phases, key=lambda p: p.start):
        end = phase.start + phase.seconds
        total += max(0.0, end - max(phase.start, reached))
        reached = max(reached, end)
    return total


def _place(path: tuple[str, ...], starts: Sequence[Sequence[Phase]]) -> tuple[float, ...]:
    """Where it stands: below its parents, by when each of them began in the first start."""
    for phases in starts:
        begins: dict[tuple[str, ...], float] = {}
        for phase in phases:
            begins[phase.path] = min(phase.start, begins.get(phase.path, phase.start))
        if path in begins:
            prefixes = [path[: n + 1] for n in range(len(path))]
            return tuple(begins.get(prefix, 0.0) for prefix in prefixes)
    return (0.0,)


def _path(span: Mapping[str, Any], by_id: Mapping[Any, Mapping[str, Any]]) -> tuple[str, ...]:
    names = [_label(span)]
    while len(names) < _MAX_DEPTH and (parent := by_id.get(span.get("parent"))) is not None:
        span = parent
        names.append(_label(span))
    return tuple(reversed(names))


def _label(span: Mapping[str, Any]) -> str:
    """The span's name; of what each process has one of, with the process."""
    process = texts(span.get("attributes")).get("process", "")
    return f"{str(span.get('name'))[:64]} {process[:32]}".rstrip()


def number(value: Any) -> float | None:
    """A JSON number, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e15 else None  # noqa: PLR2004 - NaN and nonsense too


def _float(text: str) -> float | None:
    try:
        return number(float(text))
    except ValueError:
        return None


def texts(value: Any) -> dict[str, str]:
    """Attributes as short texts."""
    if not isinstance(value, Mapping):
        return {}
    return {str(name)[:64]: str(given)[:512] for name, given in list(value.items())[:32]}


def _maps(value: Any) -> list[Mapping[str, Any]]:
    return [v for v in value if isinstance(v, Mapping)] if isinstance(value, list) else []
