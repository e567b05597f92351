"""``runs list``: one line per run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coldsnap.render.columns import Cell, table
from coldsnap.render.palette import PLAIN, Palette
from coldsnap.render.quantities import ago, duration
from coldsnap.render.report.model import plan_name
from coldsnap.render.report.text import STATE_STYLES
from coldsnap.render.run_states import run_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldsnap.engine.history import History
    from coldsnap.engine.runs import RunSummary


def runs_text(runs: Sequence[RunSummary], palette: Palette = PLAIN) -> str:
    if not runs:
        return "No runs yet. Start one: coldsnap plan apply PLAN"
    rows = []
    for run in runs:
        history = run.history
        rows.append(
            (
                run.id,
                plan_name(history.header) if history else "-",
                Cell(run_word(run.state), STATE_STYLES.get(run.state, "")),
                _counts(history),
                duration(history.seconds) if history else "-",
                ago(history.started) if history else "-",
            )
        )
    return table(("RUN", "PLAN", "STATE", "STEPS", "TOOK", "STARTED"), rows, palette)


def _counts(history: History | None) -> str:
    """``3 changed, 1 failed``."""
    if history is None:
        return "-"
    states = [instance.state.value for instance in history.instances.values()]
    words = {"done": "changed", "unchanged": "unchanged", "failed": "failed"}
    counted = [f"{states.count(state)} {word}" for state, word in words.items() if state in states]
    return ", ".join(counted) or "none"


def run_json(run: RunSummary) -> dict[str, Any]:
    history = run.history
    value: dict[str, Any] = {
        "id": run.id,
        "state": run.state,
        "active": run.active,
        "torn_bytes": run.torn_bytes,
        "fault": run.fault.to_json() if run.fault else None,
    }
    if history is not None:
        value.update(
            plan=plan_name(history.header),
            started=history.started,
            ended=history.ended,
            seconds=history.seconds,
            exit_code=history.exit_code,
            resumes=history.resumes,
            head=history.head,
        )
    return value


def run_details_json(run: RunSummary) -> dict[str, Any]:
    """`run_json` with every instance: what ``runs show --json`` prints."""
    instances = run.history.instances.values() if run.history else ()
    return {
        **run_json(run),
        "instances": [
            {
                "step": i.key.step,
                "host": i.key.host,
                "unit": i.key.unit,
                "type": i.type,
                "state": i.state.value,
                "started": i.started,
                "seconds": i.seconds,
                "attempts": i.attempts,
                "change": dict(i.change),
                "outputs": dict(i.outputs),
                "reason": i.reason,
                "error": i.error.to_json() if i.error else None,
            }
            for i in instances
        ],
    }
