"""A small world for the engine: hosts whose state is a JSON file, and steps that set keys in it.

The state is on disk, so that it outlives a process that is killed in the middle of a run.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from coldsnap.artifact import canonical
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.cancel import CancelToken, cancelled
from coldsnap.engine.events import Kind, RunEvent
from coldsnap.engine.history import History, fold
from coldsnap.engine.jobs import NoJobs
from coldsnap.engine.journal import verify
from coldsnap.engine.lease import NoLeases
from coldsnap.engine.runs import Runs
from coldsnap.engine.setup import Limits, Setup
from coldsnap.plan.model import Frame, OnFailure, Plan, Retry, StepNode
from coldsnap.plan.registry import Registry
from coldsnap.sdk import (
    Action,
    Change,
    FactRequest,
    JobEvent,
    OperationRequest,
    OperationResult,
    Outputs,
    Pack,
    Row,
    Scope,
    Seen,
    Spec,
    Step,
    StepContext,
    Topology,
    Unit,
    unchanged,
)


class FakeHost:
    def __init__(self, name: str, folder: Path, fleet: FakeFleet) -> None:
        self.name, self._folder, self._fleet = name, folder, fleet
        self.vars: Mapping[str, Any] = {"rack": f"rack-of-{name}"}
        self.trips = 0

    def ask(self, request: FactRequest) -> Any:
        return self.ask_all([request])[0]

    def ask_all(self, requests: Sequence[FactRequest]) -> list[Any]:
        cached = self._fleet.cache.get(self.name, {})
        keys = [canonical.dumps([request.fact, request.args]) for request in requests]
        if all(key in cached for key in keys):
            return [cached[key] for key in keys]
        self._fleet.check(self.name)
        self.trips += 1
        state = self.read()
        return [state.get(request.args["key"]) for request in requests]

    def perform(
        self,
        request: OperationRequest,
        *,
        timeout: float | None = None,
        on_event: Callable[[JobEvent], None] | None = None,
    ) -> OperationResult:
        self._fleet.cache.pop(self.name, None)
        self._fleet.check(self.name)
        args = request.args
        with self.changing() as state:
            state.setdefault("log", []).append([request.operation, args.get("key"), request.job])
        if on_event:
            on_event(JobEvent("progress", "moving", 1, 2))
        self._wait(float(args.get("seconds", 0)), timeout)
        with self.changing() as state:
            if args.get("value") is None:
                state.pop(args["key"], None)
            else:
                state[args["key"]] = args["value"]
        return OperationResult(True, {"value": args.get("value")})

    def _wait(self, seconds: float, timeout: float | None) -> None:
        """Sleep like a remote command: ended by its time-out or by a cancel."""
        epoch = self._fleet.epoch
        end = time.monotonic() + seconds
        limit = None if timeout is None else time.monotonic() + timeout
        while time.monotonic() < end:
            if self._fleet.epoch != epoch:
                raise cancelled("cut off", self.name)
            if limit is not None and time.monotonic() > limit:
                raise ColdSnapError("host.timeout", "took too long", self.name)
            time.sleep(0.005)

    def upload(self, *_args: object, **_kwargs: object) -> bool:
        raise NotImplementedError

    def read(self) -> dict[str, Any]:
        path = self._folder / f"{self.name}.json"
        return json.loads(path.read_text()) if path.exists() else {}

    @contextmanager
    def changing(self) -> Any:
        with (self._folder / f"{self.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = self.read()
            yield state
            temporary = self._folder / f"{self.name}.tmp"
            temporary.write_text(json.dumps(state))
            temporary.replace(self._folder / f"{self.name}.json")


class FakeFleet:
    path = "inventories/fake.yaml"

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        folder.mkdir(exist_ok=True)
        self._names = tuple(names)
        self._hosts = {name: FakeHost(name, folder, self) for name in names}
        self.sha256 = canonical.digest(list(names))
        self.down: set[str] = set()
        self.cache: dict[str, dict[str, Any]] = {}
        self.prefetches: list[dict[str, int]] = []
        self.epoch = 0

    def select(self, selector: str) -> tuple[str, ...]:
        if selector == "all":
            return self._names
        chosen = tuple(n for n in self._names if n == selector or n.startswith(selector + "-"))
        if not chosen:
            raise ColdSnapError("inventory.unknown-host", f"no host or group {selector!r}")
        return chosen

    def host(self, name: str) -> FakeHost:
        return self._hosts[name]

    def check(self, name: str) -> None:
        if name in self.down:
            raise ColdSnapError("host.unreachable", "no route to host", name)

    def connect(self, names: Sequence[str]) -> Mapping[str, ColdSnapError]:
        return {
            name: ColdSnapError("host.unreachable", "no route to host", name)
            for name in names
            if name in self.down
        }

    def prefetch(self, requests: Mapping[str, Sequence[FactRequest]]) -> dict[str, ColdSnapError]:
        self.prefetches.append({name: len(asked) for name, asked in requests.items()})
        for name, asked in requests.items():
            host = self._hosts[name]
            host.trips += 1
            state = host.read()
            self.cache.setdefault(name, {}).update(
                {canonical.dumps([r.fact, r.args]): state.get(r.args["key"]) for r in asked}
            )
        return {}

    def forget(self, names: Sequence[str]) -> None:
        for name in names:
            self.cache.pop(name, None)

    def cancel(self) -> None:
        self.epoch += 1

    def close(self) -> None:
        pass


def die_at(place: str) -> None:
    """SIGKILL to ourselves, if this is the place that the parent chose."""
    if os.environ.get("KILL_AT") == place:
        os.kill(os.getpid(), signal.SIGKILL)


class SetSpec(Spec):
    key: str
    value: str
    seconds: float = 0.0
    fail: int = 0
    """How many applies fail before one succeeds."""
    refuse: bool = False
    crash: bool = False
    dirty: bool = False


class Set(Step[SetSpec]):
    """Sets a key of the host to a value."""

    type = "t.set"
    summary = "set a key"
    spec = SetSpec
    scope = Scope.HOST
    outputs: ClassVar = {"value": "the value", "was": "what was there"}
    failures: ClassVar[dict[str, int]] = {}
    pauses: ClassVar[bool] = False

    def key(self, spec: SetSpec, ctx: StepContext) -> str:
        return f"{spec.key}.{ctx.unit.id}" if ctx.unit else spec.key

    def reads(self, spec: SetSpec, ctx: StepContext) -> Sequence[FactRequest]:
        return (
            FactRequest("fake:State", {"key": self.key(spec, ctx)}),
            FactRequest("fake:State", {"key": "other"}),
        )

    def observe(self, spec: SetSpec, ctx: StepContext) -> Seen:
        die_at(f"observe:{ctx.step}")
        assert ctx.host is not None
        return {"value": ctx.host.ask(self.reads(spec, ctx)[0])}

    def diff(self, spec: SetSpec, seen: Seen, ctx: StepContext) -> Change:
        die_at(f"diff:{ctx.step}")
        if spec.refuse:
            raise ColdSnapError("test.refused", "this cannot be done", ctx.where)
        if seen["value"] == spec.value:
            return unchanged("set already")
        return Change(
            Action.CREATE if seen["value"] is None else Action.CHANGE,
            f"set {spec.key}",
            (Row(Action.CREATE, spec.key, spec.value),),
            pauses_serving=self.pauses,
        )

    def apply(self, spec: SetSpec, change: Change, ctx: StepContext) -> Outputs:
        assert ctx.host is not None
        die_at(f"apply:{ctx.step}")
        if spec.crash:
            raise ValueError("boom")
        name = f"{ctx.run}.{ctx.step}.{ctx.where}"
        if self.failures.setdefault(name, 0) < spec.fail:
            self.failures[name] += 1
            raise ColdSnapError("test.failed", f"could not set {spec.key}", changed=spec.dirty)
        ctx.host.perform(
            OperationRequest(
                "fake:set",
                {"key": self.key(spec, ctx), "value": spec.value, "seconds": spec.seconds},
                ctx.job,
            )
        )
        die_at(f"applied:{ctx.step}")
        return {"value": spec.value, "was": None, "undeclared": 1}

    def recover(self, spec: SetSpec, seen: Seen, ctx: StepContext) -> None:
        assert ctx.host is not None
        die_at(f"recover:{ctx.step}")
        ctx.host.perform(
            OperationRequest(
                "fake:unset", {"key": self.key(spec, ctx), "value": seen["value"]}, ctx.job
            )
        )
        die_at(f"recovered:{ctx.step}")

    def known(self, spec: SetSpec, seen: Seen, ctx: StepContext) -> Outputs:
        return {"value": spec.value, "was": seen["value"]}


class SetUnit(Set):
    type = "t.unit"
    scope = Scope.UNIT


class Pause(Set):
    type = "t.pause"
    pauses = True


class Forever(Set):
    type = "t.forever"
    reversible = False


class SetRun(Step[SetSpec]):
    """Runs once, on no host; keeps nothing."""

    type = "t.run"
    summary = "once per run"
    spec = SetSpec
    scope = Scope.RUN
    read_only = True
    outputs: ClassVar = {"value": "the value"}

    def observe(self, spec: SetSpec, ctx: StepContext) -> Seen:
        return {}

    def diff(self, spec: SetSpec, seen: Seen, ctx: StepContext) -> Change:
        return Change(Action.CHANGE, "say it")

    def apply(self, spec: SetSpec, change: Change, ctx: StepContext) -> Outputs:
        time.sleep(spec.seconds)
        return {"value": spec.value}


class MeetSpec(Spec):
    deadline: float = 10.0


class Meet(Step[MeetSpec]):
    type = "t.meet"
    summary = "wait for all"
    spec = MeetSpec
    scope = Scope.HOST
    read_only = True
    outputs: ClassVar = {"waited": "seconds"}

    def observe(self, spec: MeetSpec, ctx: StepContext) -> Seen:
        return {}

    def diff(self, spec: MeetSpec, seen: Seen, ctx: StepContext) -> Change:
        return Change(Action.CHANGE, "meet")

    def apply(self, spec: MeetSpec, change: Change, ctx: StepContext) -> Outputs:
        assert ctx.barrier is not None
        out = ctx.barrier.arrive("all", ctx.where, ctx.instances, spec.deadline)
        if out.aborted_by:
            raise ColdSnapError("barrier.aborted", f"{out.aborted_by} left: {out.reason}")
        if out.stragglers:
            raise ColdSnapError("barrier.deadline", f"waited for {', '.join(out.stragglers)}")
        return {"waited": out.waited}


PACK = Pack("t", {step.type: step for step in (Set, SetUnit, Pause, Forever, SetRun, Meet)})


def node(step: str, kind: str = "t.set", needs: Sequence[str] = (), **fields: Any) -> StepNode:
    """A step; keyword arguments that `StepNode` does not have are its parameters."""
    own = {"hosts", "when", "timeout", "retry", "on_failure"}
    settings = {name: fields.pop(name) for name in own & fields.keys()}
    if kind != "t.meet":
        fields = {"key": step, "value": f"v-{step}", **fields}
    if isinstance(settings.get("on_failure"), str):
        settings["on_failure"] = OnFailure(settings["on_failure"])
    frame = Frame(steps={need: need for need in needs})
    return StepNode(step, kind, tuple(needs), raw_with=fields, frame=frame, **settings)


def fast_retry(attempts: int) -> Retry:
    return Retry(attempts=attempts, delay=0.01)


class World:
    """A project folder with hosts; every call makes a new `Setup`, as a new process would."""

    def __init__(self, folder: Path, hosts: Sequence[str] = ("a-1", "a-2")) -> None:
        self.folder = folder
        self.machines = folder / "machines"
        self.hosts = tuple(hosts)
        self.events: list[RunEvent] = []
        self.registry = Registry.from_packs(PACK)
        self.fleet = FakeFleet(self.machines, self.hosts)
        self.cancel = CancelToken()
        self.on_event: Callable[[RunEvent], None] = lambda _event: None

    def plan(self, *nodes: StepNode, units: Sequence[Unit] = ()) -> Plan:
        topology = Topology(units=tuple(units), workers=(), groups=(), services=())
        request = {"steps": [[n.id, n.type, dict(n.raw_with)] for n in nodes]}
        return Plan(
            path="plans/test.yaml",
            name="test",
            description="",
            document_sha256=canonical.digest(request),
            variables={},
            engine=None,
            driver="criu",
            model=None,
            topology=topology if units else None,
            store="oci-layout:/nowhere",
            steps=tuple(nodes),
            request=request,
            request_sha256=canonical.digest(request),
            raw_units={unit.id: unit.model_dump(mode="json") for unit in units},
        )

    def setup(self, *nodes: StepNode, units: Sequence[Unit] = (), **changes: Any) -> Setup:
        values: dict[str, Any] = {
            "plan": self.plan(*nodes, units=units),
            "text": "coldsnap: plan/v1\n",
            "fleet": self.fleet,
            "registry": self.registry,
            "project": self.folder,
            "sink": self.sink,
            "cancel": self.cancel,
            "leases": NoLeases(),
            "jobs": NoJobs(),
            "limits": Limits(heartbeat=0.2, hang_grace=0.3),
        }
        return Setup(**{**values, **changes})

    def sink(self, event: RunEvent) -> None:
        self.events.append(event)
        if event.key is not None:
            die_at(f"{event.kind.value}:{event.key.step}")
        self.on_event(event)

    def state(self, host: str) -> dict[str, Any]:
        state = self.fleet.host(host).read()
        return {key: value for key, value in state.items() if key != "log"}

    def log(self, host: str) -> list[list[Any]]:
        return self.fleet.host(host).read().get("log", [])

    def set(self, host: str, **values: Any) -> None:
        with self.fleet.host(host).changing() as state:
            state.update(values)
            for key in [key for key, value in values.items() if value is None]:
                del state[key]

    def said(self, kind: Kind) -> list[RunEvent]:
        return [event for event in self.events if event.kind is kind]

    def last(self) -> History:
        runs = Runs(self.folder)
        return fold(verify(runs.find("latest").journal).records)

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        threading.Timer(seconds, call).start()
