"""A run's report as one HTML page that needs nothing else: no script, font or image from outside.

The template gets plain numbers and text; Jinja2 escapes all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from coldsnap import __version__
from coldsnap.render.errors import error_text
from coldsnap.render.palette import clean
from coldsnap.render.quantities import duration, fine, local_time, short_digest, size, times
from coldsnap.render.report.waterfall import Lane, lanes_of
from coldsnap.render.run_states import run_word

if TYPE_CHECKING:
    from coldsnap.render.report.model import RunReport, SpanBar, StepBar
    from coldsnap.render.report.races import Race

_MAX_TICKS: Final = 8
_PARTS: Final = ("residual",)
"""Sizes that are a part of another one: residual bytes lie in the payload."""
_SHOWN_STATES: Final = ("done", "failed", "recovered", "applying", "recovering")


@dataclass(frozen=True)
class Track:
    """One bar of the waterfall, in percent of the whole width."""

    label: str
    left: float
    width: float
    state: str
    amount: str
    note: str
    depth: int = 0


def report_html(report: RunReport) -> str:
    """The page."""
    environment = Environment(
        loader=PackageLoader("coldsnap.render.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(duration=duration, size=size, digest=short_digest, run_word=run_word)
    page: str = environment.get_template("report.html.j2").render(_context(report))
    return page


def _context(report: RunReport) -> dict[str, Any]:
    return {
        "report": report,
        "version": __version__,
        "started": local_time(report.started),
        "tiles": _tiles(report),
        "races": [_race(race, report) for race in report.races],
        "ticks": _ticks(report.span),
        "hosts": [
            {"name": clean(host), "steps": [_tracks(bar, report.span) for bar in _worth(bars)],
             "quiet": len(bars) - len(_worth(bars))}
            for host, bars in report.hosts
        ],
        "sizes": _sizes(report),
        "rows": [(clean(host), bar) for host, bars in report.hosts for bar in bars],
        "errors": [error_text(error) for error in report.errors],
    }  # fmt: skip


def _tiles(report: RunReport) -> list[tuple[str, str]]:
    """The figures that matter, largest first."""
    tiles = []
    if report.races:
        best = report.races[0]
        done = "started cold, to first token" if best.started_cold else "restore to first token"
        tiles.append((duration(best.restore_seconds), done))
        if best.cold_seconds is not None:
            tiles.append((duration(best.cold_seconds), "cold start to first token"))
        if best.ratio is not None:
            tiles.append((times(best.ratio), "faster than a cold start"))
        if best.same_answer is not None:
            tiles.append(("yes" if best.same_answer else "no", "same answer"))
    if report.captured:
        moved = sum(bar.bytes for bar in report.sizes if bar.moved and bar.name not in _PARTS)
        tiles.append((size(moved), "captured"))
    if report.seconds is not None:
        tiles.append((duration(report.seconds), "whole run"))
    return tiles


def _race(race: Race, report: RunReport) -> dict[str, Any]:
    """Two waterfalls on one axis, and the restore again on an axis of its own."""
    label = clean(f"{race.unit} on {race.host}") if len(report.races) > 1 else clean(race.unit)
    lanes = lanes_of(race)
    own = [lane for lane in lanes if lane.kind == "restore"]
    longest = max([lane.start + lane.seconds for lane in own])
    return {
        "label": label,
        "facts": [clean(fact) for fact in race.facts],
        "ticks": _ticks(race.span),
        "lanes": [_lane(lane, race.span) for lane in lanes],
        "own_ticks": _ticks(longest),
        "own": [_lane(lane, longest) for lane in own] if len(own) > 1 else [],
    }


def _lane(lane: Lane, span: float) -> Track:
    state = "failed" if not lane.ok else lane.kind
    track = _track(lane.label, lane.start, lane.seconds, state, lane.note, span, lane.depth)
    return replace(track, amount=fine(lane.seconds))


def _worth(bars: tuple[StepBar, ...]) -> list[StepBar]:
    """Steps that did something; the others are in the table below."""
    return [bar for bar in bars if bar.state in _SHOWN_STATES]


def _tracks(bar: StepBar, span: float) -> dict[str, Any]:
    name = f"{bar.step} {bar.unit}" if bar.unit else bar.step
    note = "  ".join(word for word in (bar.type, bar.summary, bar.reason) if word)
    own = _track(name, bar.start, bar.seconds, bar.state, note, span)
    return {"own": own, "spans": [_span_track(s, span) for s in bar.spans]}


def _span_track(bar: SpanBar, span: float) -> Track:
    note = ", ".join(f"{name} {value}" for name, value in bar.attributes.items())
    state = "span" if bar.ok else "failed"
    return _track(bar.name, bar.start, bar.seconds, state, note, span, bar.depth)


def _track(
    label: str, start: float, seconds: float, state: str, note: str, span: float, depth: int = 0
) -> Track:
    left = min(100.0, max(0.0, start / span * 100))
    # A bar that is too short to see still has to be found.
    width = max(0.25, min(100.0 - left, seconds / span * 100))
    return Track(clean(label), left, width, state, duration(seconds), clean(note), depth)


def _ticks(span: float) -> list[tuple[float, str]]:
    """Round times along the axis: (percent, label)."""
    steps = (lead * 10.0**power for power in range(-3, 8) for lead in (1, 2, 5))
    step = next(step for step in steps if span / step <= _MAX_TICKS)
    times_shown = [number * step for number in range(int(span / step) + 1)]
    return [(at / span * 100, duration(at) if at else "0") for at in times_shown]


def _sizes(report: RunReport) -> list[tuple[str, int, float, bool]]:
    """Name, bytes, percent of the largest, whether it is in the capture."""
    largest = max((bar.bytes for bar in report.sizes), default=1)
    return [
        (clean(bar.name).replace("_", " "), bar.bytes, bar.bytes / largest * 100, bar.moved)
        for bar in sorted(report.sizes, key=lambda bar: -bar.bytes)
    ]
