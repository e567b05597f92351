"""The stand-ins on which a step's cases run: a host that records, an engine that is data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coldsnap.sdk import (
    Acceptance,
    ColdSnapError,
    FactRequest,
    HttpCall,
    JobEvent,
    Launch,
    Model,
    OperationRequest,
    OperationResult,
    PlanView,
    RuntimeRef,
    Scope,
    Step,
    StepContext,
    Topology,
    Unit,
)
from coldsnap.sdk.topology import Group, Service, Worker


class CaseEngine:
    name = "case"

    def launch(self, unit: Unit, model: Model, host_vars: Mapping[str, Any]) -> Launch:
        return Launch((str(host_vars["python"]), "-m", "case", model.path))

    def ready(self, unit: Unit) -> HttpCall:
        return HttpCall("GET", "/health")

    def quiesce(self) -> tuple[HttpCall, ...]:
        return (HttpCall("POST", "/quiesce", {"dir": "{dir}"}),)

    def resume(self) -> tuple[HttpCall, ...]:
        return (HttpCall("POST", "/resume"),)

    def hydrate(self) -> tuple[HttpCall, ...]:
        return (HttpCall("POST", "/hydrate", {"payload": "{payload}"}),)

    def export(self) -> tuple[HttpCall, ...]:
        return (HttpCall("POST", "/export"),)

    def sleep(self) -> tuple[HttpCall, ...]:
        return (HttpCall("POST", "/sleep"),)

    def wake(self) -> tuple[HttpCall, ...]:
        return (HttpCall("POST", "/wake_up"),)

    def acceptance(self, model: Model) -> Acceptance:
        return Acceptance(body={"model": model.id})


class RecordingHost:
    """Answers facts from `facts` (by verb or fact name), records what is performed."""

    name = "gpu-1"

    def __init__(self, facts: Mapping[str, Any], results: Mapping[str, Any]) -> None:
        self.vars: Mapping[str, Any] = {"state_dir": "/state", "python": "python3"}
        self._facts, self._results = facts, results
        self.performed: list[dict[str, Any]] = []
        self.uploaded: list[str] = []

    def ask(self, request: FactRequest) -> Any:
        name = str(request.args.get("verb") or request.fact.rpartition(":")[2])
        if name not in self._facts:
            raise ColdSnapError("case.unanswered", f"the case has no answer for {name}")
        return self._facts[name]

    def ask_all(self, requests: Sequence[FactRequest]) -> list[Any]:
        return [self.ask(request) for request in requests]

    def perform(
        self,
        request: OperationRequest,
        *,
        timeout: float | None = None,
        on_event: Callable[[JobEvent], None] | None = None,
    ) -> OperationResult:
        name = str(request.args.get("verb") or request.operation.rpartition(":")[2])
        body = dict(request.args.get("request") or request.args)
        self.performed.append({"verb": name, "request": body, "job": request.job})
        result = self._results.get(name, {})
        if "error" in result:
            raise ColdSnapError.from_json(result["error"])
        return OperationResult(changed=True, result=result)

    def upload(
        self,
        local: Path,
        remote: str,
        *,
        sha256: str,
        mode: int = 0o644,
        on_event: Callable[[JobEvent], None] | None = None,
    ) -> bool:
        self.uploaded.append(remote)
        return True


DIGEST = "sha256:" + "ab" * 32


def context(step: type[Step[Any]], host: RecordingHost, case: Mapping[str, Any]) -> StepContext:
    unit = Unit(id="u0", command=("serve",))
    topology = Topology(
        units=(unit,),
        workers=(Worker(id="w0", unit="u0"),),
        groups=(Group(id="world", kind="serve:world", members=("w0",)),),
        services=(Service(id="serve", workers=("w0",)),),
    )
    plan = PlanView(
        name="case",
        driver=str(case.get("driver", "criu")),
        model=Model(id="m", path="/models/m"),
        topology=topology,
        store="oci-layout:{state_dir}/store",
        request={"engine": "case"},
        request_sha256=DIGEST,
    )
    return StepContext(
        run="R1" if case.get("run", True) else "",
        step=f"capture.{step.type.partition('.')[2]}",
        host=host,
        unit=unit if step.scope is Scope.UNIT else None,
        plan=plan,
        engine=CaseEngine(),
        runtime=RuntimeRef(DIGEST, "/cache/pack.tar", DIGEST, 14 << 20),
        instances=("gpu-1: unit u0",),
    )
