"""The engine: from a typed plan and hosts to previews, runs and journals.

It knows no serving engine, no step type and no transport. What others use of it:

| name | what |
|---|---|
| `Setup`, `Limits` | everything a call needs: plan, text, fleet, registry, project folder, limits |
| `preview_plan(setup) -> Preview` | `surveying.preview`: observe + diff; changes nothing |
| `save_plan(setup, preview, path)`, `load_plan_file(path)`, `is_saved_plan(path)` | saved plans |
| `apply(setup, saved=None) -> RunResult` | a new run |
| `resume(setup, folder)`, `rollback(setup, folder)` | work on a run that stopped |
| `stored_plan(folder)` | what a run recorded of its plan, to make their `Setup` |
| `Runs(project)`: `ids`, `find(name)`, `summary`, `summaries` | the runs of a project |
| `verify(path) -> Verification` | a journal: is it intact? |
| `fold(records) -> History` | a journal: what does it say? |
| `CancelToken`: `request(signum)` | what a signal handler calls |
| `exit_code_of_preview`, `exit_code_of_error` | exit codes, decided in `outcome` |
| `Fleet` | the protocol that `coldsnap.fleet` implements |

Follow one apply: `applying` makes the run's folder and journal; `process` wires the parts and
obeys cancels; `walk` goes through the instances that `instances` expanded, in the order and the
threads of `schedule`; `attempts` does one instance (render, observe, diff, journal, apply,
journal); `endings` puts back what `on_failure` says through `recovery`; `outcome` names the end.

Nothing is imported before it is asked for: the command line starts quickly.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coldsnap.engine.applying import apply
    from coldsnap.engine.cancel import CancelToken
    from coldsnap.engine.events import EventSink, Kind, RunEvent
    from coldsnap.engine.fleet import Fleet
    from coldsnap.engine.history import History, fold
    from coldsnap.engine.journal import Verification, verify
    from coldsnap.engine.outcome import (
        RunResult,
        RunState,
        exit_code_of_error,
        exit_code_of_preview,
    )
    from coldsnap.engine.preview import InstanceKey, InstancePreview, Preview
    from coldsnap.engine.recorded import stored_plan
    from coldsnap.engine.resuming import resume
    from coldsnap.engine.rolling_back import rollback
    from coldsnap.engine.runs import RunFolder, Runs, RunSummary
    from coldsnap.engine.saved import SavedPlan, is_saved_plan, load_plan_file, save_plan
    from coldsnap.engine.setup import Limits, Setup
    from coldsnap.engine.surveying import preview as preview_plan

__all__ = [
    "CancelToken",
    "EventSink",
    "Fleet",
    "History",
    "InstanceKey",
    "InstancePreview",
    "Kind",
    "Limits",
    "Preview",
    "RunEvent",
    "RunFolder",
    "RunResult",
    "RunState",
    "RunSummary",
    "Runs",
    "SavedPlan",
    "Setup",
    "Verification",
    "apply",
    "exit_code_of_error",
    "exit_code_of_preview",
    "fold",
    "is_saved_plan",
    "load_plan_file",
    "preview_plan",
    "resume",
    "rollback",
    "save_plan",
    "stored_plan",
    "verify",
]

_PLACES = {
    "CancelToken": "cancel",
    "EventSink": "events",
    "Fleet": "fleet",
    "History": "history",
    "InstanceKey": "preview",
    "InstancePreview": "preview",
    "Kind": "events",
    "Limits": "setup",
    "Preview": "preview",
    "RunEvent": "events",
    "RunFolder": "runs",
    "RunResult": "outcome",
    "RunState": "outcome",
    "RunSummary": "runs",
    "Runs": "runs",
    "SavedPlan": "saved",
    "Setup": "setup",
    "Verification": "journal",
    "apply": "applying",
    "exit_code_of_error": "outcome",
    "exit_code_of_preview": "outcome",
    "fold": "history",
    "is_saved_plan": "saved",
    "load_plan_file": "saved",
    "preview_plan": "surveying:preview",
    "resume": "resuming",
    "rollback": "rolling_back",
    "save_plan": "saved",
    "stored_plan": "recorded",
    "verify": "journal",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, own = _PLACES[name].partition(":")
    return getattr(importlib.import_module(f"coldsnap.engine.{module}"), own or name)
