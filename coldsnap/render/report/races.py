"""Restores against the cold starts that their captures were made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from coldsnap.render.phases import (
    Phase,
    note_of,
    phases_of,
    recorded_phases,
    until_first_token,
)
from coldsnap.render.report.values import maps, number, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coldsnap.engine.history import InstanceHistory


_HOLDERS: Final = frozenset({"restore", "ladder"})
"""Spans that only hold others."""
_WORTH_TELLING: Final = 0.02
"""Seconds of an inner phase."""


@dataclass(frozen=True)
class Race:
    """A restore of one unit against its cold start, each to the same first token."""

    host: str
    unit: str
    restore_seconds: float
    cold_seconds: float | None
    same_answer: bool | None
    restore_phases: tuple[Phase, ...] = ()
    """Until the first token."""
    cold_phases: tuple[Phase, ...] = ()
    """Of the cold start that the capture was made of."""
    facts: tuple[str, ...] = ()
    """How it was done: provider, way of the process image, what was given up on the way."""
    started_cold: bool = False
    """It could not be restored: these seconds are those of a cold start, the plan's last resort."""

    @property
    def span(self) -> float:
        """Seconds of the axis that both waterfalls share."""
        ends = [p.start + p.seconds for p in (*self.restore_phases, *self.cold_phases)]
        return max([*ends, self.restore_seconds, self.cold_seconds or 0.0, 0.001])

    @property
    def parts(self) -> tuple[tuple[str, float, str], ...]:
        """The phases of the restore that one line has room for: name, seconds, note."""
        return _parts(self.restore_phases)

    @property
    def ratio(self) -> float | None:
        if self.started_cold or self.cold_seconds is None or self.restore_seconds <= 0:
            return None
        return self.cold_seconds / self.restore_seconds


def races_of(instances: Iterable[InstanceHistory]) -> tuple[Race, ...]:
    """One for each unit that was restored and answered."""
    by_unit: dict[tuple[str, str], list[InstanceHistory]] = {}
    for instance in instances:
        if instance.key.unit:
            by_unit.setdefault((instance.key.host, instance.key.unit), []).append(instance)
    races = []
    for (host, unit), group in by_unit.items():
        restored = [i for i in group if "cold_start_seconds" in i.outputs and i.touched]
        seconds = [number(i.outputs.get("first_token_seconds")) for i in group]
        known = [value for value in seconds if value is not None]
        if not restored or not known:
            continue
        same = [i.outputs["same"] for i in group if isinstance(i.outputs.get("same"), bool)]
        timings = [i.outputs.get("timing") for i in group]
        races.append(
            Race(
                host,
                unit,
                known[-1],
                number(restored[-1].outputs.get("cold_start_seconds")),
                all(same) if same else None,
                until_first_token(phases_of(timings)),
                recorded_phases(restored[-1].outputs.get("cold_start")),
                _facts(restored[-1].outputs),
                _used(restored[-1].outputs) == "cold",
            )
        )
    return tuple(races)


def _used(outputs: Mapping[str, Any]) -> str:
    provider = outputs.get("provider")
    return text(provider.get("used")) if isinstance(provider, Mapping) else ""


def _facts(outputs: Mapping[str, Any]) -> tuple[str, ...]:
    """``weights by recovery (native: pack.damaged)``, ``process image by ext``."""
    facts = []
    provider = outputs.get("provider")
    if isinstance(provider, Mapping) and provider.get("used"):
        facts.append(_weights(text(provider["used"]), maps(provider.get("faults"))))
    image = outputs.get("process_image")
    if isinstance(image, Mapping) and image.get("rung"):
        left = [
            f"{text(one.get('rung'))}: {text(one.get('code'))}" for one in maps(image.get("left"))
        ]
        facts.append(_with(f"process image by {text(image['rung'])}", left))
    return tuple(facts)


def _weights(used: str, faults: Iterable[Mapping[str, Any]]) -> str:
    """Only what came before the provider that was used was given up; recovery is never first."""
    told = [(text(one.get("provider")), text(one.get("code"))) for one in faults]
    failed = [f"{name}: {code}" for name, code in told if (used, name) != ("native", "recovery")]
    said = _with("started cold" if used == "cold" else f"weights by {used}", failed)
    without = [code for name, code in told if (used, name) == ("native", "recovery")]
    return f"{said}; recovery would not be possible: {', '.join(without)}" if without else said


def _with(text: str, given_up: list[str]) -> str:
    return f"{text} (given up: {', '.join(given_up)})" if given_up else text


def _parts(phases: Sequence[Phase]) -> tuple[tuple[str, float, str], ...]:
    """What a line tells of the phases: the outermost; of what only holds others, those."""
    found: list[tuple[str, float, str]] = []
    for phase in phases:
        if phase.path[:-1] and set(phase.path[:-1]) - _HOLDERS:
            continue
        inner = [p for p in phases if p.path[:-1] == phase.path]
        if phase.name in _HOLDERS and inner:
            continue
        if not phase.depth or phase.seconds >= _WORTH_TELLING:
            found.append((phase.name, phase.seconds, note_of(phase)))
    return tuple(found)
