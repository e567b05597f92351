"""What a run's journal says of its plan, and whether the plan at hand is that one."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import coldsnap
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.history import History, fold
from coldsnap.engine.instances import Expansion
from coldsnap.engine.journal import Journal, verify
from coldsnap.engine.outcome import RunState
from coldsnap.engine.runs import RunFolder
from coldsnap.engine.saved import SavedPlan
from coldsnap.engine.setup import Setup
from coldsnap.sdk.step import RuntimeRef

JOURNAL_FORMAT = 1


def stored_plan(folder: RunFolder) -> Mapping[str, Any]:
    """What a run recorded of its plan: path, text, variables, inventory, slice.

    Returns:
        The header: ``plan {path, name, text, document_sha256, request_sha256, variables}``,
        ``inventory {path, sha256}``, ``selected`` (step ids or None).

    Raises:
        ColdSnapError: ``journal.tampered``, ``run.empty``, ``file.missing``.
    """
    try:
        found = verify(folder.journal)
    except ColdSnapError as error:
        raise empty(folder) if error.code == "file.missing" else error from None
    if found.fault is not None:
        raise found.fault
    if not found.records:
        raise empty(folder)
    return fold(found.records).header


def header(
    setup: Setup, folder: RunFolder, expansion: Expansion, saved: SavedPlan | None
) -> dict[str, Any]:
    """The first record of a journal."""
    plan = setup.plan
    return {
        "format": JOURNAL_FORMAT,
        "run": folder.id,
        "coldsnap": coldsnap.__version__,
        **setup.origin(),
        "engine": plan.engine,
        "driver": plan.driver,
        "runtime": asdict(setup.runtime) if setup.runtime else None,
        "selected": sorted(setup.selected) if setup.selected is not None else None,
        "saved_plan": saved.sha256 if saved else None,
        "instances": len(expansion),
        "hosts": list(expansion.hosts),
        **who(),
    }


def who() -> dict[str, Any]:
    """The process that works on the run."""
    return {"controller": socket.gethostname(), "pid": os.getpid(), "uid": os.getuid()}


def reopened(folder: RunFolder) -> tuple[Journal, History]:
    """The journal of a run to go on with, and what it says so far.

    Raises:
        ColdSnapError: ``journal.tampered``, ``journal.cut``, ``run.empty``; ``file.*``.
    """
    try:
        journal, found = Journal.reopen(folder.journal)
    except ColdSnapError as error:
        raise empty(folder) if error.code == "file.missing" else error from None
    if not found.records:
        journal.close()
        raise empty(folder)
    if (cut := folder.cut(found.records)) is not None:
        journal.close()
        raise cut
    history = fold(found.records)
    history.head = journal.head
    return journal, history


def empty(folder: RunFolder) -> ColdSnapError:
    return ColdSnapError(
        "run.empty",
        f"run {folder.id} has no record: it was ended before it began, or its journal was removed",
        remedy="look at the targets (coldsnap status), then apply the plan again",
    )


def refuse_closed(history: History, what: str) -> None:
    """Raises: ColdSnapError: ``run.finished``, ``run.rolled-back``."""
    if not history.closed:
        return
    if history.state == RunState.ROLLED_BACK.value:
        raise ColdSnapError(
            "run.rolled-back",
            f"run {history.run} was rolled back and cannot be {what}",
            remedy=f"apply the plan again: coldsnap plan apply {history.header['plan']['path']}",
        )
    if what == "rolled back":
        remedy = (
            "restore an artifact from before (coldsnap artifact list), or stop the unit: "
            "coldsnap plan apply plans/evict.yaml"
        )
    else:
        remedy = f"apply the plan again: coldsnap plan apply {history.header['plan']['path']}"
    raise ColdSnapError(
        "run.finished",
        f"run {history.run} is finished and cannot be {what}",
        cause="a run is open only while something of it is left to do; what it replaced is gone",
        remedy=remedy,
    )


def as_recorded(setup: Setup, history: History) -> Setup:
    """The setup with the slice and the runtime pack of the run; it must hold the same request.

    The run's own pack is the one that is staged on its hosts, whatever this coldsnap would build.

    Raises:
        ColdSnapError: ``run.differs``.
    """
    recorded = history.header["plan"]
    if setup.plan.request_sha256 != recorded["request_sha256"]:
        raise ColdSnapError(
            "run.differs",
            f"the plan at hand is not the one of run {history.run}",
            details=(
                f"recorded request {recorded['request_sha256']}",
                f"present request  {setup.plan.request_sha256}",
            ),
            cause="a pack, a variable or the plan changed since",
            remedy="apply the plan as a new run",
        )
    selected = history.header.get("selected")
    return replace(
        setup,
        selected=None if selected is None else frozenset(selected),
        runtime=_runtime(history) or setup.runtime,
    )


def _runtime(history: History) -> RuntimeRef | None:
    value = history.header.get("runtime")
    return RuntimeRef(**value) if value else None


def same_instances(history: History, expansion: Expansion) -> None:
    """Raises: ColdSnapError: ``run.differs`` when a host or unit of the run is gone."""
    missing = [str(key) for key in history.instances if key not in expansion.by_key]
    if missing:
        raise ColdSnapError(
            "run.differs",
            f"the inventory no longer has what run {history.run} worked on",
            details=tuple(sorted(missing)[:10]),
            remedy=f"use the inventory of the run: {history.header['inventory']['path']}",
        )
