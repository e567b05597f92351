"""What a report says of a run, read from the run's folded journal; no format is decided here.

Steps are known by what they give: outputs named `timing`, `capture.sizes`, `bytes`,
`first_token_seconds`, `cold_start_seconds`, `same`. Values come from hosts, so each is checked
before it is used; what does not fit is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from coldsnap.render.report.races import Race, races_of
from coldsnap.render.report.values import attributes, maps, number, text

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
        races=races_of(instances),
        errors=tuple(i.error for i in instances if i.error is not None),
        artifacts=_artifacts(instances),
        captured=any("capture" in i.outputs and i.outputs["capture"] for i in instances),
    )


def plan_name(header: Mapping[str, Any]) -> str:
    """Name of the plan that a run's header tells of."""
    plan = header.get("plan")
    name = plan.get("name") if isinstance(plan, Mapping) else header.get("plan_name")
    return text(name)


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
        summary=text(instance.change.get("summary")),
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
        c.get("id"): number(c.get("origin_unix_ns")) or 0.0 for c in maps(envelope.get("clocks"))
    }
    raw = maps(envelope.get("spans"))[:_MAX_SPANS]
    parents = {span.get("id"): span.get("parent") for span in raw}
    bars = []
    for span in raw:
        offset, seconds = (
            number(span.get("start_offset_seconds")),
            number(span.get("duration_seconds")),
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
            text(span.get("name")),
            at + shift,
            seconds,
            span.get("status") != "error",
            depth,
            attributes(span.get("attributes")),
        )
        for span, at, seconds, depth in sorted(bars, key=lambda bar: (bar[1], bar[3]))
    )


def _depth(identity: Any, parents: Mapping[Any, Any]) -> int:
    depth = 0
    while (identity := parents.get(identity)) is not None and depth < 16:  # noqa: PLR2004
        depth += 1
    return depth


def _sizes(instances: Iterable[InstanceHistory]) -> tuple[SizeBar, ...]:
    """Bytes of all that the run captured or restored, by kind."""
    total: dict[str, int] = {}
    for instance in instances:
        capture = instance.outputs.get("capture")
        given = capture if isinstance(capture, Mapping) else instance.outputs
        sizes = given.get("sizes")
        for name, value in (sizes or {}).items() if isinstance(sizes, Mapping) else ():
            count = number(value)
            if count is not None and count > 0:
                total[text(name)] = total.get(text(name), 0) + int(count)
    return tuple(SizeBar(name, count, "discard" not in name) for name, count in total.items())


def _artifacts(instances: Iterable[InstanceHistory]) -> tuple[str, ...]:
    found = (i.outputs.get("artifact") for i in instances)
    return tuple(dict.fromkeys(value for value in found if isinstance(value, str) and value))
