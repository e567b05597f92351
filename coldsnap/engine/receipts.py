"""What a run leaves beside its journal: ``run.json`` and ``receipt.json``.

``run.json`` sums the run up and names the digest of the journal's last record, so that a journal
cut off at its end is noticed too. ``receipt.json`` is the operation receipt, format 2, of a plan
that carries out an operation of that contract (capture, restore, ...); of any other plan it is
the same as ``run.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coldsnap.artifact import canonical
from coldsnap.artifact.drivers import DriverRef
from coldsnap.artifact.files import write_atomic
from coldsnap.artifact.receipt import (
    REPLAY,
    Operation,
    Receipt,
    ReceiptResult,
    instant,
    publish_receipt,
)
from coldsnap.artifact.timing import Clock, Span, Timing, accept, merge
from coldsnap.engine.history import History, InstanceHistory, State
from coldsnap.engine.outcome import RunResult, RunState
from coldsnap.engine.runs import RunFolder
from coldsnap.plan.model import Plan

_OPERATIONS: Mapping[str, Operation] = {
    "restore": "restore",
    "checkpoint": "capture",
    "publish": "publish",
    "sleep": "sleep",
    "wake": "wake",
}
"""Verb of a step type -> operation of the receipt contract; the first that a plan has counts."""
_MAX_SPANS = 1000
_ARTIFACTS = ("artifact", "manifest")
"""Outputs that name what was captured or restored."""
_PLACED = (State.DONE, State.UNCHANGED, State.FAILED, State.RECOVERED)


def write_receipts(plan: Plan, folder: RunFolder, history: History, result: RunResult) -> None:
    """Write both files; called when the journal has its last record.

    Raises:
        ColdSnapError: ``file.*``.
    """
    summary = run_summary(plan, history, result)
    text = canonical.dumps(summary).encode("ascii") + b"\n"
    write_atomic(folder.path / "run.json", text)
    operation = operation_of(plan)
    if operation is None or plan.engine is None:
        write_atomic(folder.receipt, text)
        return
    folder.receipt.unlink(missing_ok=True)  # a run that is resumed replaces its own
    publish_receipt(folder.receipt, _receipt(plan, operation, history, result))


def operation_of(plan: Plan) -> Operation | None:
    """The operation of the receipt contract that a plan carries out, if any."""
    verbs = {node.type.rpartition(".")[2] for node in plan.steps}
    return next((name for verb, name in _OPERATIONS.items() if verb in verbs), None)


def run_summary(plan: Plan, history: History, result: RunResult) -> dict[str, Any]:
    """``run.json``: kind ``coldsnap-run``, format 1."""
    timing = run_timing(history)
    return {
        "format": 1,
        "kind": "coldsnap-run",
        "run": result.run,
        "plan": {
            "name": plan.name,
            "path": plan.path,
            "document_sha256": plan.document_sha256,
            "request_sha256": plan.request_sha256,
        },
        "inventory": history.header.get("inventory"),
        "state": result.state.value,
        "exit_code": result.exit_code,
        "started_at": instant(int(history.started * 1e9)),
        "completed_at": instant(int((history.ended or history.started) * 1e9)),
        "duration_seconds": _duration(history),
        "counts": {
            name: getattr(result, name)
            for name in ("changed", "unchanged", "failed", "skipped", "recovered")
        },
        "errors": [error.to_json() for error in result.errors],
        "resumes": history.resumes,
        "journal": {"head_sha256": history.head},
        "timing": timing.to_json() if timing else None,
    }


def run_timing(history: History) -> Timing | None:
    """A span for each instance on the controller's clock, and what the targets measured."""
    clock = Clock("controller", "CLOCK_BOOTTIME", int(history.started * 1e9))
    placed = [item for item in history.instances.values() if item.state in _PLACED]
    longest = sorted(placed, key=lambda item: -item.seconds)[:_MAX_SPANS]
    spans = [_span(item) for item in sorted(longest, key=lambda item: item.offset)]
    own = accept(Timing((clock,), tuple(spans)).to_json()) if spans else None
    parts = {"run": own} if own else {}
    for item in longest:
        # What an instance reports that another one did, a restore that went on, is told there.
        found = accept(item.outputs.get("timing")) if item.touched else None
        if found is not None:
            parts[_identity(item)] = found
    return merge(parts)


def _span(item: InstanceHistory) -> Span:
    attributes = {"host": item.key.host, "unit": item.key.unit, "state": item.state.value}
    return Span(
        id=_identity(item),
        name=item.key.step[:128],
        clock="controller",
        start_offset_seconds=max(0.0, item.offset - item.seconds),
        duration_seconds=item.seconds,
        status="error" if item.error is not None else "ok",
        attributes={name: value for name, value in attributes.items() if value},
    )


def _identity(item: InstanceHistory) -> str:
    """An id of the timing contract: letters, digits, dots and dashes."""
    parts = (item.key.step, item.key.host, item.key.unit)
    return ".".join(part for part in parts if part).replace("@", "")[:100]


def _receipt(plan: Plan, operation: Operation, history: History, result: RunResult) -> Receipt:
    succeeded = result.state is RunState.SUCCEEDED
    driver = plan.driver if plan.driver != "auto" else "criu"
    error = None if succeeded else _said(result)
    artifact = _artifact(history)
    return Receipt(
        operation_id=result.run,
        operation=operation,
        state="succeeded" if succeeded else "failed",
        request_sha256=plan.request_sha256,
        engine=plan.engine or "",
        snapshot_driver=DriverRef(driver),
        replay_semantics=REPLAY[operation],
        started_at=instant(int(history.started * 1e9)),
        completed_at=instant(int((history.ended or history.started) * 1e9)),
        duration_seconds=_duration(history),
        timing=run_timing(history),
        result=ReceiptResult(artifact=artifact) if succeeded and artifact else None,
        error=error,
    )


def _said(result: RunResult) -> str:
    """One text for why it did not succeed."""
    if result.error is None:
        return f"the run was {result.state.value}"
    return "\n".join(str(error) for error in result.errors)[:4000]


def _artifact(history: History) -> str | None:
    """What the last step that names an artifact made or used."""
    found: tuple[int, str] | None = None
    for item in history.instances.values():
        for name in _ARTIFACTS:
            value = item.outputs.get(name)
            if isinstance(value, str) and value and (found is None or item.order >= found[0]):
                found = (item.order, value)
    return found[1] if found else None


def _duration(history: History) -> float:
    """On the journal's clock; by the wall clock when the controller rebooted in between."""
    measured = history.last - history.clock
    if measured >= 0:
        return measured
    return max(0.0, (history.ended or history.started) - history.started)
