"""The operation request, format 4: what a manager asks for, with defaults resolved.

``request_sha256`` is the digest of the request after its defaults were filled in, not of the
bytes that came; so leaving a default out or spelling it out is the same request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from coldsnap.artifact import canonical
from coldsnap.artifact.decode import Record, decode, parse
from coldsnap.artifact.drivers import DriverRef
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.launch import Launch
from coldsnap.artifact.policy import Policy
from coldsnap.artifact.receipt import Operation
from coldsnap.artifact.rules import Digest, Id, Line, Prose

MAX_REQUEST_BYTES = 16 << 20

_NEEDS_OUTPUT = ("capture", "publish", "publish-native")
_NEEDS_ARTIFACT = ("publish", "publish-native", "restore", "sleep", "wake", "status")
_NEEDS_CLUSTER = ("sleep", "wake", "status")


@dataclass(frozen=True)
class AnswerCheck(Record):
    """How to know that the engine serves, and that it answers as before."""

    health_path: Line = "/health"
    prompt: Prose = ""
    expected: Prose = ""

    def problems(self) -> Iterator[tuple[str, str]]:
        if not self.health_path.startswith("/"):
            yield "/health_path", "must start with /"


@dataclass(frozen=True)
class Workload(Record):
    """What a cluster manager calls it."""

    cluster_id: Line = ""
    intent_id: Line = ""
    recipe: Line = ""
    runtime: Line = ""
    model: Line = ""
    served_model_name: Line = ""
    log_path: Line = ""

    def problems(self) -> Iterator[tuple[str, str]]:
        if any(vars(self).values()):
            for name in ("cluster_id", "intent_id", "recipe", "runtime", "model"):
                if not getattr(self, name):
                    yield f"/{name}", "is needed where any field of the workload is given"


@dataclass(frozen=True)
class Lifecycle(Record):
    activation_state: Literal["running", "warm"] = "running"


@dataclass(frozen=True)
class Request(Record):
    operation: Operation
    id: Id
    snapshot_driver: DriverRef
    launch: Launch
    artifact: Line = ""
    """Digest or reference of the artifact to act on."""
    output: Line = ""
    """Store URI or name for what the operation makes."""
    policy: Policy = field(default_factory=Policy)
    validation: AnswerCheck = field(default_factory=AnswerCheck)
    workload: Workload = field(default_factory=Workload)
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    extensions: Mapping[Id, Any] = field(default_factory=dict)
    """Ours: plan name, variables that change the capture."""
    format: Literal[4] = 4
    kind: Literal["coldsnap-operation-request"] = "coldsnap-operation-request"

    def problems(self) -> Iterator[tuple[str, str]]:
        yield from _references(self)
        yield from _warm(self)
        yield from _graphs(self)
        yield from _coverage(self)

    @property
    def sha256(self) -> Digest:
        """``request_sha256``."""
        return canonical.digest(self.to_json())


def read_request(data: bytes | str, *, operation: str | None = None) -> Request:
    """The request in `data`, its defaults resolved.

    Args:
        data: JSON text of at most 16 MiB.
        operation: what the command line says; the request must say the same.

    Raises:
        ColdSnapError: ``request.invalid`` with a JSON pointer.
    """
    value = parse(data, limit=MAX_REQUEST_BYTES, what="request", code="request.invalid")
    return resolve_request(value, operation=operation)


def resolve_request(value: Any, *, operation: str | None = None) -> Request:
    """As `read_request`, of a parsed JSON value.

    Raises:
        ColdSnapError: ``request.invalid`` with a JSON pointer.
    """
    request = decode(Request, _with_defaults(value), what="request", code="request.invalid")
    if operation is not None and request.operation != operation:
        message = f"request: /operation: is {request.operation}, the command is {operation}"
        raise ColdSnapError("request.invalid", message)
    return request


def _with_defaults(value: Any) -> Any:
    """Defaults that depend on what else is there, or on what is not."""
    if not isinstance(value, dict):
        return value
    policy = value.get("policy")
    policy = dict(policy) if isinstance(policy, dict) else {} if policy is None else policy
    if not isinstance(policy, dict):
        return value
    process, cache = policy.get("process") or {}, policy.get("cache") or {}
    if isinstance(process, dict) and "graph_policy" not in process:
        off = process.get("async_graphs") is False
        policy["process"] = {**process, "graph_policy": "" if off else _graph_default(value)}
    if isinstance(cache, dict) and cache.get("seed") is False and "paths" not in cache:
        policy["cache"] = {**cache, "paths": []}
    return {**value, "policy": policy}


def _graph_default(value: dict[str, Any]) -> str:
    driver = value.get("snapshot_driver")
    name = driver.get("id") if isinstance(driver, dict) else None
    return {"n610": "preserve-nccl-exec", "criu": "disabled"}.get(str(name), "recreate-from-plan")


def _references(request: Request) -> Iterator[tuple[str, str]]:
    operation = request.operation
    if operation in _NEEDS_OUTPUT and not request.output:
        yield "/output", f"is needed for {operation}"
    if operation in _NEEDS_ARTIFACT and not request.artifact:
        yield "/artifact", f"is needed for {operation}"
    if operation == "publish" and not request.policy.capsule.repository:
        yield "/policy/capsule/repository", "is needed for publish"
    if operation == "publish-native" and not request.policy.weights.native.repository:
        yield "/policy/weights/native/repository", "is needed for publish-native"
    if operation in _NEEDS_CLUSTER and not request.workload.cluster_id:
        yield "/workload/cluster_id", f"is needed for {operation}"


def _warm(request: Request) -> Iterator[tuple[str, str]]:
    if request.lifecycle.activation_state != "warm":
        return
    if request.operation != "restore" or request.snapshot_driver.id != "n610":
        yield "/lifecycle/activation_state", "warm is for restore with driver n610"
    if request.policy.weights.native.materialize == "required":
        yield "/lifecycle/activation_state", "warm excludes materialize=required"


def _graphs(request: Request) -> Iterator[tuple[str, str]]:
    process = request.policy.process
    for index, unit in enumerate(request.launch.units):
        is_eager = any("--enforce-eager" in argument for argument in unit.command)
        if is_eager and process.async_graphs and process.graph_policy != "disabled":
            yield f"/launch/units/{index}/command", "--enforce-eager excludes async_graphs"
        for path in request.policy.cache.paths:
            for mount in unit.mounts:
                if _overlap(path, mount.target):
                    yield f"/launch/units/{index}/mounts", f"{mount.target} overlaps cache {path}"


def _coverage(request: Request) -> Iterator[tuple[str, str]]:
    """Lists by worker cover all workers or none."""
    workers = set(request.launch.workers())
    native = request.policy.weights.native
    staged = {item.worker for item in native.staged}
    if staged and staged != workers:
        yield "/policy/weights/native/staged", "must name all workers or none"
    if native.files_by_worker and set(native.files_by_worker) != workers:
        yield "/policy/weights/native/files_by_worker", "must name all workers or none"
    if request.policy.cache.staged and request.operation != "capture":
        yield "/policy/cache/staged", "is for capture only"


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(other + "/") or other.startswith(one + "/")
