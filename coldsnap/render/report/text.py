"""The last words of a run, and ``runs show``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coldsnap.render.columns import Cell, table
from coldsnap.render.errors import error_text
from coldsnap.render.palette import PLAIN, Palette, clean
from coldsnap.render.quantities import duration, local_time, plural, short_digest, size, times
from coldsnap.render.report.waterfall import waterfall_text
from coldsnap.render.run_states import run_word

if TYPE_CHECKING:
    from coldsnap.engine.outcome import RunResult
    from coldsnap.render.report.model import RunReport, StepBar
    from coldsnap.render.report.races import Race

_UNFINISHED = ("partial", "cancelled", "interrupted")
STATE_STYLES = {
    "succeeded": "good",
    "done": "good",
    "failed": "error",
    "partial": "error",
    "damaged": "error",
    "recovered": "warn",
    "rolled-back": "warn",
    "cancelled": "warn",
    "interrupted": "warn",
    "running": "hint",
    "unchanged": "dim",
    "skipped": "dim",
    "observed": "dim",
}

_MEETING = "core.barrier"
"""Participants wait for each other; that changes nothing."""


def closing_text(report: RunReport, folder: str = "", palette: Palette = PLAIN) -> str:
    """What is said when a run ends: what came of it, where its record is."""
    lines = [_race_lines(race, report, palette) for race in report.races]
    if report.captured:
        lines.append(_capture_line(report, palette))
    if not lines and _is_idle(report):
        lines.append(f" {palette.paint('nothing to do', 'good')}  {clean(report.plan)}")
    if not lines:
        took = f" in {duration(report.seconds)}" if report.seconds is not None else ""
        word = palette.paint(run_word(report.state), STATE_STYLES.get(report.state, ""))
        lines.append(f" {word}  {clean(report.plan)}{took}")
    if report.state in _UNFINISHED:
        run = report.run
        lines.append(f" coldsnap plan resume {run} goes on; coldsnap plan rollback {run} puts back")
    receipt = f"; receipt {folder}/receipt.json" if folder else ""
    more = f"coldsnap runs report {report.run} --html report.html"
    lines.append(palette.paint(f" run {report.run}{receipt}; {more}", "dim"))
    return "\n".join(lines)


def _is_idle(report: RunReport) -> bool:
    """Whether the run looked everywhere and found nothing to do."""
    states = {bar.state for _, bars in report.hosts for bar in bars if bar.type != _MEETING}
    return report.state == "succeeded" and states <= {"unchanged", "skipped"}


def result_json(result: RunResult) -> dict[str, Any]:
    """What ``plan apply --json`` prints."""
    return {
        "run": result.run,
        "state": result.state.value,
        "exit_code": result.exit_code,
        "changed": result.changed,
        "unchanged": result.unchanged,
        "failed": result.failed,
        "skipped": result.skipped,
        "recovered": result.recovered,
        "seconds": result.seconds,
        "folder": result.folder,
        "outputs": dict(result.outputs),
        "errors": [error.to_json() for error in result.errors],
    }


def _race_lines(race: Race, report: RunReport, palette: Palette) -> str:
    done = palette.paint(*(("started cold", "warn") if race.started_cold else ("restored", "good")))
    words = [
        f" {done}  {clean(report.plan)}",
        clean(f"{race.unit} on {race.host}"),
        f"{duration(race.restore_seconds)} to first token",
    ]
    if race.cold_seconds is not None:
        when = " at the capture" if race.started_cold else ""
        words.append(f"cold start{when} {duration(race.cold_seconds)}")
    if race.ratio is not None:
        words.append(palette.paint(times(race.ratio), "strong"))
    if race.same_answer is not None:
        said = palette.paint("yes", "good") if race.same_answer else palette.paint("no", "error")
        words.append(f"same answer: {said}")
    lines = ["   ".join(words)]
    if race.parts:
        lines.append("   " + "   ".join(_part(*part) for part in race.parts))
    lines += [
        f"   {palette.paint(clean(fact), 'warn' if 'given up' in fact else 'hint')}"
        for fact in race.facts
        if "given up" in fact or "not be possible" in fact
    ]
    return "\n".join(lines)


def _part(name: str, seconds: float, note: str) -> str:
    return f"{clean(name)} {duration(seconds)}" + (f" ({note})" if note else "")


def _capture_line(report: RunReport, palette: Palette) -> str:
    words = [f" {palette.paint('captured', 'good')}  {clean(report.plan)}"]
    words.extend(f"{clean(bar.name).replace('_', ' ')} {size(bar.bytes)}" for bar in report.sizes)
    words.extend(short_digest(clean(artifact)) for artifact in report.artifacts)
    return "   ".join(words)


def report_text(report: RunReport, palette: Palette = PLAIN) -> str:
    """``runs show``: the head, the steps of each host, what failed."""
    took = f" in {duration(report.seconds)}" if report.seconds is not None else ""
    word = palette.paint(run_word(report.state), STATE_STYLES.get(report.state, ""))
    parts = [
        (
            f"run {report.run}  {clean(report.plan)}  {word}{took}  "
            f"started {local_time(report.started)}"
        )
    ]
    for host, bars in report.hosts:
        rows = [_step_row(bar) for bar in bars]
        head = palette.paint(f"  {clean(host)} ({plural(len(bars), 'step')})", "strong")
        parts.append(head + "\n" + table((), rows, palette, indent="    "))
    parts.extend(waterfall_text(race, palette) for race in report.races)
    parts.extend(error_text(error, palette) for error in report.errors)
    if report.races or report.captured:
        parts.append(closing_text(report, palette=palette))
    return "\n\n".join(parts)


def _step_row(bar: StepBar) -> list[str | Cell]:
    name = f"{bar.step} {bar.unit}" if bar.unit else bar.step
    tries = f"{bar.attempts} tries" if bar.attempts > 1 else ""
    note = "  ".join(word for word in (bar.summary, tries, bar.reason) if word)
    took = duration(bar.seconds) if bar.seconds else ""
    return [name, Cell(bar.state, STATE_STYLES.get(bar.state, "")), took, note]
