"""The plans of a bench: the user's two, and those that follow from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.cli.plans import Loaded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldsnap.cli.session import Session
    from coldsnap.plan.document import Document
    from coldsnap.plan.registry import Registry

_STOP: list[dict[str, Any]] = [
    {"id": "stage", "type": "core.stage"},
    {
        "id": "stop",
        "type": "core.evict",
        "needs": ["stage"],
        "with": {"keep": "none", "grace": 0},
    },
]
"""SIGKILL for every process of the units, as a crash would."""


@dataclass(frozen=True)
class BenchPlans:
    """What is applied, and how often a plan of the user's is behind it: `stop` ends the units."""

    capture: Loaded
    cold: Loaded
    restore: Loaded
    stop: tuple[Loaded, ...]
    units: tuple[str, ...]
    session: Session
    document: Document
    """Of the restore plan: the plans of the page cache are made from it."""

    def page_cache(self, state: str, artifacts: Sequence[str]) -> Loaded | None:
        """The plan that brings the page cache of the units' hosts into a state.

        Args:
            state: warm, dropped.
            artifacts: what a restore reads; empty for a cold start, which reads the model.
        """
        model = self.restore.plan.model
        given: dict[str, Any] = {"state": state}
        if state == "warm" and artifacts:
            given["artifacts"] = list(artifacts)
        elif state == "warm" and model and model.path:
            given["model"] = True
        elif state == "warm":
            return None
        steps: list[dict[str, Any]] = [
            {"id": "stage", "type": "core.stage"},
            {"id": "cache", "type": "core.page-cache", "needs": ["stage"], "with": given},
        ]
        return _derived(self.session, self.document, self.restore.registry, state, steps)


def plans_of(session: Session, capture: str, restore: str, cold: str) -> BenchPlans:
    """The user's two plans, and those that follow from them.

    Args:
        session: its variables are given to each plan that declares them.
        capture: file of a plan with a template use ``ENGINE.capture``.
        restore: file of the plan that brings its artifact back.
        cold: file of a plan that starts the units cold and records answers (core.accept); empty:
            the capture plan with ``ENGINE.cold`` instead of its steps.

    Raises:
        ColdSnapError: ``plan.*``, ``bench.no-cold-plan``.
    """
    from coldsnap.plan.document import read_document
    from coldsnap.plan.registry import Registry

    registry = Registry.installed()
    first, second = read_document(Path(capture)), read_document(Path(restore))
    captured = _loaded(session, first, registry)
    if cold:
        started = _loaded(session, read_document(Path(cold)), registry)
    else:
        started = _derived(session, first, registry, "cold", [_cold_use(captured, first, registry)])
    restored = _loaded(session, second, registry)
    by_units = {_units(captured): first, _units(restored): second}
    stops = [_derived(session, document, registry, "stop", _STOP) for document in by_units.values()]
    units = dict.fromkeys(unit for units in by_units for unit, _ in units)
    return BenchPlans(captured, started, restored, tuple(stops), tuple(units), session, second)


def _units(loaded: Loaded) -> tuple[tuple[str, str], ...]:
    """(unit, where it runs): plans with equal ones are stopped by one."""
    topology = loaded.plan.topology
    return tuple((unit.id, str(unit.hosts)) for unit in topology.units) if topology else ()


def _cold_use(captured: Loaded, document: Document, registry: Registry) -> dict[str, Any]:
    """The use of ``ENGINE.cold`` that starts what the plan captures."""
    engine = captured.plan.engine or ""
    name = f"{engine}.cold"
    uses = [item for item in document.data["steps"] if item.get("uses") == f"{engine}.capture"]
    if name not in registry.template_files or not uses:
        raise ColdSnapError(
            "bench.no-cold-plan",
            f"{document.file} does not say how its units are started cold",
            details=(f"looked for a use of {engine}.capture, and for a template {name}",),
            remedy="write a plan that launches them and records answers: --cold-plan FILE",
        )
    inputs = registry.template(name).inputs
    given = {key: value for key, value in (uses[0].get("with") or {}).items() if key in inputs}
    return {"id": "cold", "uses": name, "with": given}


def _derived(
    session: Session,
    document: Document,
    registry: Registry,
    suffix: str,
    steps: Sequence[Mapping[str, Any]],
) -> Loaded:
    from coldsnap.plan.document import parse_document

    data = {**document.data, "steps": list(steps)}
    data["name"] = f"{data.get('name', 'bench')}-{suffix}"[:63]
    text = json.dumps(data, indent=1)
    made = parse_document(text.encode(), f"{document.file} ({suffix})")
    return _loaded(session, made, registry)


def _loaded(session: Session, document: Document, registry: Registry) -> Loaded:
    """Load with those of the session's variables that the plan declares."""
    from coldsnap.plan.loading import load_document
    from coldsnap.plan.variables import Given

    declared = document.data.get("vars") or {} if isinstance(document.data, dict) else {}
    flags = tuple(f for f in session.flags.variables if f.partition("=")[0] in declared)
    given = Given(flags=flags, files=session.flags.variable_files)
    return Loaded(load_document(document, registry, given), document.text, registry)
