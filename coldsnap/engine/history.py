"""What a journal says of a run, folded: each instance's state, seen, change and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.journal import Record
from coldsnap.engine.outcome import may_have_changed
from coldsnap.engine.preview import InstanceKey


class State(StrEnum):
    """Where an instance stands; only `APPLYING` can have been cut off in the middle."""

    OBSERVED = "observed"
    APPLYING = "applying"
    DONE = "done"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"
    FAILED = "failed"
    RECOVERING = "recovering"
    RECOVERED = "recovered"
    """Put back; for a resume it has not run."""


_CHANGED = (State.DONE, State.APPLYING, State.RECOVERING)


@dataclass
class InstanceHistory:
    key: InstanceKey
    type: str = ""
    state: State = State.OBSERVED
    seen: Mapping[str, Any] | None = None
    """What was found before this run first touched it: what `recover` puts back."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """The rendered parameters of the last apply, so that a rollback needs no expressions."""
    change: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    order: int = 0
    """Sequence number of its first change; recovery goes from high to low. 0: never changed."""
    attempts: int = 0
    job: str = ""
    """Id of the runtime job of its last apply."""
    redo: int = 0
    """How often it was applied anew after it had been done or put back; part of its job's id."""
    finished: bool = False
    """Whether its present job id is used up: it was done, or put back."""
    seconds: float = 0.0
    started: float = 0.0
    """Unix seconds of the first attempt's start."""
    offset: float = 0.0
    """Seconds from the start of the run to its last end, on the journal's clock."""
    reason: str = ""
    """Why it was skipped."""
    error: ColdSnapError | None = None
    dirty: bool = False
    """Whether a failed apply may have left something changed."""
    touched: bool = False
    """Whether there may be something to put back."""

    @property
    def next_redo(self) -> int:
        """`redo` of the next apply: a new job, unless the last one was cut off or failed."""
        return self.redo + 1 if self.finished else self.redo


@dataclass
class History:
    header: Mapping[str, Any]
    started: float
    clock: float = 0.0
    """The journal's clock at the start."""
    last: float = 0.0
    """The journal's clock at the last record; less than `clock` after a reboot."""
    ended: float | None = None
    state: str = ""
    """How the last process left it: ``succeeded``, ``failed``, ``recovered``, ``partial``,
    ``cancelled``, ``rolled-back``; empty when it never said (running, or killed)."""
    exit_code: int | None = None
    closed: bool = False
    resumes: int = 0
    instances: dict[InstanceKey, InstanceHistory] = field(default_factory=dict)
    leases: set[tuple[str, str]] = field(default_factory=set)
    """(host, unit) whose lease this run took and did not give back."""
    head: str = ""

    @property
    def run(self) -> str:
        return str(self.header["run"])

    @property
    def seconds(self) -> float | None:
        """Wall-clock from the first record to the last end."""
        return None if self.ended is None else self.ended - self.started

    def changed(self) -> list[InstanceHistory]:
        """Instances that are changed now, or may be."""
        return [
            instance
            for instance in self.instances.values()
            if instance.touched and (instance.dirty or instance.state in _CHANGED)
        ]

    def touched(self) -> list[InstanceHistory]:
        """Instances that this run changed or was changing, newest first."""
        found = (instance for instance in self.instances.values() if instance.touched)
        return sorted(found, key=lambda instance: instance.order, reverse=True)


def key_json(key: InstanceKey) -> dict[str, str]:
    return {"step": key.step, "host": key.host, "unit": key.unit}


def key_from(value: Mapping[str, Any]) -> InstanceKey:
    return InstanceKey(str(value["step"]), str(value.get("host", "")), str(value.get("unit", "")))


def fold(records: Sequence[Record]) -> History:
    """The state that the records lead to; they must begin with ``run.header``.

    Raises:
        ColdSnapError: ``journal.no-header``.
    """
    if not records or records[0].kind != "run.header":
        raise ColdSnapError("journal.no-header", "the journal does not begin with its header")
    first = records[0]
    history = History(first.body, first.time, first.clock, first.clock, head=first.sha256)
    for record in records[1:]:
        advance(history, record)
    return history


def advance(history: History, record: Record) -> None:
    """Take one more record into account."""
    history.head, history.last = record.sha256, record.clock
    if record.kind.startswith("step."):
        _step(history, record)
    else:
        _run(history, record)


def _run(history: History, record: Record) -> None:
    body = record.body
    if record.kind in ("run.closed", "run.stopped"):
        history.state, history.exit_code = str(body["state"]), int(body["exit_code"])
        history.ended, history.closed = record.time, record.kind == "run.closed"
    elif record.kind in ("run.resumed", "run.rolling-back"):
        history.state, history.exit_code, history.ended = "", None, None
        history.resumes += record.kind == "run.resumed"
    elif record.kind == "lease.acquired":
        history.leases.add((str(body["host"]), str(body["unit"])))
    elif record.kind == "lease.released":
        history.leases.discard((str(body["host"]), str(body["unit"])))


def _step(history: History, record: Record) -> None:
    key = key_from(record.body["key"])
    instance = history.instances.setdefault(key, InstanceHistory(key))
    _TRANSITIONS[record.kind.removeprefix("step.")](instance, record)
    instance.offset = max(0.0, record.clock - history.clock)


def _observed(instance: InstanceHistory, record: Record) -> None:
    instance.type = str(record.body.get("type", instance.type))
    if not instance.touched:
        instance.seen = record.body["seen"]
    if instance.state in (State.RECOVERED, State.FAILED, State.SKIPPED):
        instance.state = State.OBSERVED


def _changing(instance: InstanceHistory, record: Record) -> None:
    instance.state = State.APPLYING
    instance.touched = instance.touched or not record.body.get("read_only", False)
    instance.order = instance.order or record.seq
    instance.job = str(record.body.get("job", ""))
    instance.started = instance.started or record.time
    instance.attempts += 1
    instance.redo, instance.finished = int(record.body.get("redo", 0)), False
    instance.spec = record.body["spec"]
    instance.change = record.body["change"]
    instance.error = None


def _done(instance: InstanceHistory, record: Record) -> None:
    changed = record.body["state"] == "changed"
    # An interrupted apply can be found complete when it is resumed: still this run's change.
    instance.state = State.DONE if changed or instance.touched else State.UNCHANGED
    instance.outputs = record.body["outputs"]
    instance.finished = instance.finished or changed
    instance.seconds += float(record.body.get("seconds", 0.0))
    instance.started = instance.started or record.time
    instance.error = None


def _failed(instance: InstanceHistory, record: Record) -> None:
    instance.state = State.FAILED
    instance.error = ColdSnapError.from_json(record.body["error"])
    instance.seconds += float(record.body.get("seconds", 0.0))
    if record.body.get("applying"):
        instance.dirty = instance.dirty or may_have_changed(instance.error)


def _skipped(instance: InstanceHistory, record: Record) -> None:
    instance.state, instance.reason = State.SKIPPED, str(record.body.get("reason", ""))


def _retry(instance: InstanceHistory, record: Record) -> None:
    instance.error = ColdSnapError.from_json(record.body["error"])


def _recovering(instance: InstanceHistory, _record: Record) -> None:
    instance.state = State.RECOVERING


def _recovered(instance: InstanceHistory, _record: Record) -> None:
    instance.state, instance.touched, instance.order = State.RECOVERED, False, 0
    instance.finished, instance.dirty = True, False
    instance.outputs, instance.seen = {}, None


def _irreversible(instance: InstanceHistory, _record: Record) -> None:
    instance.reason = "cannot be undone"


def _recover_failed(instance: InstanceHistory, record: Record) -> None:
    instance.state = State.FAILED
    instance.dirty = True
    instance.error = ColdSnapError.from_json(record.body["error"])


_TRANSITIONS = {
    "observed": _observed,
    "changing": _changing,
    "done": _done,
    "failed": _failed,
    "retry": _retry,
    "skipped": _skipped,
    "recovering": _recovering,
    "recovered": _recovered,
    "recover-failed": _recover_failed,
    "irreversible": _irreversible,
}
