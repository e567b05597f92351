"""A plan from a file, a saved plan or a run, with the set-up that the engine needs for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.cli.settings import Origin
from coldsnap.cli.wiring import runtime_of

if TYPE_CHECKING:
    from coldsnap.cli.session import Session
    from coldsnap.engine.runs import RunFolder
    from coldsnap.engine.saved import SavedPlan
    from coldsnap.engine.setup import Setup
    from coldsnap.plan.model import Plan
    from coldsnap.plan.registry import Registry


@dataclass(frozen=True)
class Loaded:
    plan: Plan
    text: str
    """The document as it was read."""
    registry: Registry
    inventory: str = ""
    """Inventory that goes with it unless a flag names another."""
    saved: SavedPlan | None = None


def load(session: Session, name: str) -> Loaded:
    """A plan file with the variables given, or a saved plan.

    Raises:
        ColdSnapError: ``plan.*``
    """
    from coldsnap.engine.saved import is_saved_plan, load_plan_file
    from coldsnap.plan.document import read_document
    from coldsnap.plan.loading import load_document
    from coldsnap.plan.registry import Registry
    from coldsnap.plan.variables import Given

    registry = Registry.installed()
    path = Path(name)
    if is_saved_plan(path):
        loaded = _saved(session, load_plan_file(path), registry)
    else:
        document = read_document(path)
        given = Given(flags=session.flags.variables, files=session.flags.variable_files)
        loaded = Loaded(load_document(document, registry, given), document.text, registry)
    _compare_store(session, loaded.plan)
    return loaded


def _compare_store(session: Session, plan: Plan) -> None:
    """A plan says itself where its captures live, so that a review sees it.

    Raises:
        ColdSnapError: ``plan.store-differs`` where a flag says otherwise; what is set elsewhere
            for other commands is only told of.
    """
    found = session.settings.values["store"]
    wanted = found.value if ":" in found.value else f"oci-layout:{found.value}"
    if found.origin is Origin.DEFAULT or wanted == plan.store:
        return
    if found.origin is not Origin.FLAG:
        session.story(
            f"{found.place} names {found.value}; this plan uses its own store, {plan.store}"
        )
        return
    raise ColdSnapError(
        "plan.store-differs",
        f"--store {found.value} is not the store of this plan, {plan.store}",
        plan.path,
        cause="a plan names its store, so that what is reviewed is what is applied",
        remedy=f"write store: {wanted} at the top of the plan; a variable may stand there",
    )


def _saved(session: Session, saved: SavedPlan, registry: Registry) -> Loaded:
    if session.flags.variables or session.flags.variable_files:
        raise ColdSnapError(
            "cli.usage",
            "a saved plan has its variables; --var and --var-file cannot change them",
            remedy=f"save it again: coldsnap plan diff {saved.plan['path']} --out {saved.path}",
        )
    plan = _recorded(saved.plan, registry)
    text = str(saved.plan["text"])
    return Loaded(plan, text, registry, str(saved.inventory["path"]), saved)


def load_recorded(session: Session, folder: RunFolder) -> Loaded:
    """The plan of a run, with the variables and the inventory that it had.

    Raises:
        ColdSnapError: ``journal.*``, ``plan.*``
    """
    from coldsnap.engine.recorded import stored_plan
    from coldsnap.plan.registry import Registry

    del session
    header = stored_plan(folder)
    registry = Registry.installed()
    plan = _recorded(header["plan"], registry)
    return Loaded(plan, str(header["plan"]["text"]), registry, str(header["inventory"]["path"]))


def load_made(text: str, name: str, registry: Registry) -> Loaded:
    """A plan that a command wrote itself; it has no variables."""
    from coldsnap.plan.loading import load_text
    from coldsnap.plan.variables import Given

    return Loaded(load_text(text, registry, Given(environment={}), path=name), text, registry)


def _recorded(stored: Mapping[str, Any], registry: Registry) -> Plan:
    """The plan of a stored text; its variables are those that were resolved then."""
    from coldsnap.plan.loading import load_text
    from coldsnap.plan.variables import Given

    flags = [
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in stored["variables"].items()
        if value is not None
    ]
    given = Given(flags=flags, environment={})
    return load_text(str(stored["text"]), registry, given, path=str(stored["path"]))


def sliced(
    plan: Plan, only: Sequence[str], from_: Sequence[str], until: Sequence[str]
) -> frozenset[str] | None:
    """Ids of the steps that the flags select; None for all.

    Raises:
        ColdSnapError: ``plan.unknown-step``, ``plan.empty-slice``.
    """
    from coldsnap.graph.dag import StepGraph
    from coldsnap.graph.slices import Slice, select

    chosen = Slice(only, from_, until)
    return None if chosen.is_whole else frozenset(select(plan, StepGraph.of(plan), chosen))


@contextmanager
def working(
    session: Session, loaded: Loaded, *, selected: frozenset[str] | None = None
) -> Iterator[Setup]:
    """Everything the engine needs for a plan; the fleet is closed at the end."""
    from coldsnap.engine.setup import Limits, Setup
    from coldsnap.fleet import open_fleet

    inventory = session.flags.inventory or loaded.inventory or session.settings["inventory"]
    with open_fleet(inventory) as fleet:
        yield Setup(
            plan=loaded.plan,
            text=loaded.text,
            fleet=fleet,
            registry=loaded.registry,
            project=session.project,
            runtime=runtime_of(session, fleet),
            limits=Limits(overall=int(session.settings["parallel"])),
            selected=selected,
        )
