"""What a report says of a run, read from the run's folded journal; no format is decided here.

Steps are known by what they give: outputs named `timing`, `capture.sizes`, `bytes`,
`first_token_seconds`, `cold_start_seconds`, `same`. Values come from hosts, so each is checked
before it is used; what does not fit is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from coldsnap.render.quantities import rate, size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coldsnap.artifact.errors import ColdSnapError
    from coldsnap.engine.history import History, InstanceHistory

_MAX_SPANS: Final = 2048
_SLACK: Final = 1.0
"""Seconds by which a host's clock may differ before its spans are moved to their step."""


@dataclass(frozen=True)
class SpanBar:
    """A span inside a step, on its host's clock."""

    name: str
    start: float
    """Seconds since the run's start."""
    seconds: float
    ok: bool
    depth: int
    attributes: Mapping[str, str]


@dataclass(frozen=True)
class StepBar:
    step: str
    unit: str
    type: str
    state: str
    start: float
    """Seconds since the run's start; 0 when it did nothing."""
    seconds: float
    attempts: int
    summary: str
    reason: str
    spans: tuple[SpanBar, ...]


@dataclass(frozen=True)
class SizeBar:
    """Bytes of one kind; `moved` is False for what was left out of the capture."""

    name: str
    bytes: int
    moved: bool = True


@dataclass(frozen=True)
class Race:
    """A restore of one unit against its cold start, each to the same first token."""

    host: str
    unit: str
    restore_seconds: float
    cold_seconds: float | None
    same_answer: bool | None
    parts: tuple[tuple[str, float, str], ...]
    """Top-level spans of restore, hydrate and accept, in order: name, seconds, note."""

    @property
    def ratio(self) -> float | None:
        if self.cold_seconds is None or self.restore_seconds <= 0:
            return None
        return self.cold_seconds / self.restore_seconds


@dataclass(frozen=True)
class RunReport:
    run: str
    plan: str
    state: str
    started: float
    """Unix seconds."""
    seconds: float | None
    hosts: tuple[tuple[str, tuple[StepBar, ...]], ...]
    sizes: tuple[SizeBar, ...]
    races: tuple[Race, ...]
    errors: tuple[ColdSnapError, ...]
    artifacts: tuple[str, ...]
    captured: bool

    @property
    def span(self) -> float:
        """Seconds from the run's start to the end of its last step, at least a millisecond."""
        ends = [bar.start + bar.seconds for _, bars in self.hosts for bar in bars]
        return max([*ends, 0.001])


def report_of(history: History, state: str = "") -> RunReport:
    """The report of a run; `state` replaces the journal's word (running, interrupted)."""
    instances = list(history.instances.values())
    hosts: dict[str, list[StepBar]] = {}
    for instance in instances:
        bar = _step_bar(instance, history.started)
        hosts.setdefault(instance.key.host or "run", []).append(bar)
    return RunReport(
        run=history.run,
        plan=plan_name(history.header),
        state=state or history.state or "unfinished",
        started=history.started,
        seconds=history.seconds,
        hosts=tuple((host, tuple(bars)) for host, bars in hosts.items()),
        sizes=_sizes(instances),
        races=_races(instances),
        errors=tuple(i.error for i in instances if i.error is not None),
        artifacts=_artifacts(instances),
        captured=any("capture" in i.outputs and i.outputs["capture"] for i in instances),
    )


def plan_name(header: Mapping[str, Any]) -> str:
    """Name of the plan that a run's header tells of."""
    plan = header.get("plan")
    name = plan.get("name") if isinstance(plan, Mapping) else header.get("plan_name")
    return _text(name)


def _step_bar(instance: InstanceHistory, run_start: float) -> StepBar:
    seconds = max(0.0, instance.seconds)
    end = max(seconds, instance.offset)
    start = end - seconds
    return StepBar(
        step=instance.key.step,
        unit=instance.key.unit,
        type=instance.type,
        state=instance.state.value,
        start=start,
        seconds=seconds,
        attempts=instance.attempts,
        summary=_text(instance.change.get("summary")),
        reason=str(instance.error) if instance.error else instance.reason,
        spans=_spans(instance.outputs.get("timing"), run_start, start, end)
        if instance.touched
        else (),
    )


def _spans(envelope: Any, run_start: float, start: float, end: float) -> tuple[SpanBar, ...]:
    """The envelope's spans in the run's time; a host whose clock is off is moved to the step."""
    if not isinstance(envelope, Mapping):
        return ()
    origins = {
        c.get("id"): _number(c.get("origin_unix_ns")) or 0.0 for c in _maps(envelope.get("clocks"))
    }
    raw = _maps(envelope.get("spans"))[:_MAX_SPANS]
    parents = {span.get("id"): span.get("parent") for span in raw}
    bars = []
    for span in raw:
        offset, seconds = (
            _number(span.get("start_offset_seconds")),
            _number(span.get("duration_seconds")),
        )
        if offset is None or seconds is None:
            continue
        at = origins.get(span.get("clock"), 0.0) / 1e9 + offset - run_start
        bars.append((span, at, seconds, _depth(span.get("id"), parents)))
    if not bars:
        return ()
    first = min(at for _, at, _, _ in bars)
    last = max(at + seconds for _, at, seconds, _ in bars)
    shift = 0.0 if start - _SLACK <= first and last <= end + _SLACK else start - first
    return tuple(
        SpanBar(
            _text(span.get("name")),
            at + shift,
            seconds,
            span.get("status") != "error",
            depth,
            _attributes(span.get("attributes")),
        )
        for span, at, seconds, depth in sorted(bars, key=lambda bar: (bar[1], bar[3]))
    )


def _depth(identity: Any, parents: Mapping[Any, Any]) -> int:
    depth = 0
    while (identity := parents.get(identity)) is not None and depth < 16:  # noqa: PLR2004
        depth += 1
    return depth


def _sizes(instances: Iterable[InstanceHistory]) -> tuple[SizeBar, ...]:
    """Bytes of all captures of the run, by kind."""
    total: dict[str, int] = {}
    for instance in instances:
        capture = instance.outputs.get("capture")
        sizes = capture.get("sizes") if isinstance(capture, Mapping) else None
        for name, value in (sizes or {}).items() if isinstance(sizes, Mapping) else ():
            count = _number(value)
            if count is not None and count > 0:
                total[_text(name)] = total.get(_text(name), 0) + int(count)
    return tuple(SizeBar(name, count, "discard" not in name) for name, count in total.items())


def _races(instances: Iterable[InstanceHistory]) -> tuple[Race, ...]:
    """One for each unit that was restored and answered."""
    by_unit: dict[tuple[str, str], list[InstanceHistory]] = {}
    for instance in instances:
        if instance.key.unit:
            by_unit.setdefault((instance.key.host, instance.key.unit), []).append(instance)
    races = []
    for (host, unit), group in by_unit.items():
        restored = [i for i in group if "cold_start_seconds" in i.outputs and i.touched]
        seconds = [_number(i.outputs.get("first_token_seconds")) for i in group]
        known = [value for value in seconds if value is not None]
        if not restored or not known:
            continue
        same = [i.outputs["same"] for i in group if isinstance(i.outputs.get("same"), bool)]
        races.append(
            Race(
                host,
                unit,
                known[-1],
                _number(restored[-1].outputs.get("cold_start_seconds")),
                all(same) if same else None,
                _parts(group),
            )
        )
    return tuple(races)


def _parts(group: Iterable[InstanceHistory]) -> tuple[tuple[str, float, str], ...]:
    """Durations of the top-level spans of what ran, each on its own clock: never added."""
    parts: list[tuple[str, float, str]] = []
    for instance in group:
        if not instance.touched:
            continue
        spans = _spans(instance.outputs.get("timing"), 0, 0, 0)
        parts += [(s.name, s.seconds, _moved(s)) for s in spans if s.depth == 0]
    return tuple(parts)


def _moved(span: SpanBar) -> str:
    """Bytes and rate of a span that moved some."""
    text = span.attributes.get("bytes", "")
    count = int(text) if text.isdecimal() else 0
    return f"{size(count)}, {rate(count / span.seconds)}" if count and span.seconds > 0 else ""


def top_spans(envelope: Any) -> tuple[tuple[str, float], ...]:
    """(name, seconds) of an envelope's spans that lie in no other, in order."""
    return tuple((s.name, s.seconds) for s in _spans(envelope, 0, 0, 0) if s.depth == 0)


def _artifacts(instances: Iterable[InstanceHistory]) -> tuple[str, ...]:
    found = (i.outputs.get("artifact") for i in instances)
    return tuple(dict.fromkeys(value for value in found if isinstance(value, str) and value))


def _maps(value: Any) -> list[Mapping[str, Any]]:
    return [v for v in value if isinstance(v, Mapping)] if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value)


def _text(value: Any) -> str:
    return str(value)[:512] if value is not None else ""


def _attributes(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        return {}
    return {_text(name): _text(given) for name, given in list(value.items())[:32]}
