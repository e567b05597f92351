"""How a core step reaches the runtime pack of its host: by facts to read, by jobs to change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coldsnap.sdk import (
    ColdSnapError,
    FactRequest,
    Host,
    OperationRequest,
    RuntimeRef,
    StepContext,
)

DEFAULT_STATE_DIR = "/var/lib/coldsnap"
FACT = "coldsnap_core.facts:RuntimeVerb"
VERB = "coldsnap_core.operations:runtime_verb"


def host_of(ctx: StepContext) -> Host:
    """The host of an instance whose scope has one."""
    if ctx.host is None:
        raise ColdSnapError("internal.no-host", f"step {ctx.step} runs on no host")
    return ctx.host


def runtime_of(ctx: StepContext) -> RuntimeRef:
    if ctx.runtime is None:
        raise ColdSnapError(
            "runtime.missing",
            "no runtime pack was built",
            remedy="build it: coldsnap runtime build",
        )
    return ctx.runtime


def state_dir(ctx: StepContext) -> str:
    """Folder of ColdSnap on the target: host var ``state_dir``."""
    return str(host_of(ctx).vars.get("state_dir") or DEFAULT_STATE_DIR)


def place(ctx: StepContext) -> dict[str, Any]:
    """Arguments that every fact and operation of this pack takes."""
    hex_digest = runtime_of(ctx).digest.removeprefix("sha256:")
    return {
        "pack": f"{state_dir(ctx)}/runtime/sha256/{hex_digest}",
        "python": str(host_of(ctx).vars.get("python") or "python3"),
        "state_dir": state_dir(ctx),
    }


def store_path(ctx: StepContext) -> str:
    """Folder of the embedded store on the target.

    Raises:
        ColdSnapError: ``store.unsupported`` for a store that is not an OCI layout folder.
    """
    uri = ctx.plan.store.replace("{state_dir}", state_dir(ctx))
    scheme, _, path = uri.partition(":")
    if scheme != "oci-layout" or not path.startswith("/"):
        raise ColdSnapError(
            "store.unsupported",
            f"store {uri!r} is not an OCI layout folder",
            remedy="write store: oci-layout:/absolute/folder",
        )
    return path


def question(ctx: StepContext, verb: str, request: Mapping[str, Any]) -> FactRequest:
    """The fact that asks a reading verb."""
    return FactRequest(FACT, {"verb": verb, "request": dict(request), **place(ctx)})


def ask(ctx: StepContext, verb: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a reading verb; ``{"staged": False}`` when the host has no pack yet.

    Raises:
        ColdSnapError: the runtime's own error, with its place.
    """
    answer = host_of(ctx).ask(question(ctx, verb, request))
    return checked(ctx, answer)


def checked(ctx: StepContext, answer: Any) -> dict[str, Any]:
    """`answer` of a fact, or its error raised with this instance as its place."""
    if not isinstance(answer, dict):
        raise ColdSnapError("runtime.no-answer", "the runtime pack gave no answer", ctx.where)
    if error := answer.get("error"):
        failure = ColdSnapError.from_json(error)
        failure.where = failure.where or ctx.where
        raise failure
    return answer


def command(
    ctx: StepContext, verb: str, request: Mapping[str, Any], *, phase: str = ""
) -> dict[str, Any]:
    """Run a changing verb as the job of this instance and wait for its result.

    `phase` tells apart several jobs of one instance. The unit and the run are added to the
    request, so that the target can refuse a run that does not hold the unit's lease.
    """
    body = {**request, "run": ctx.run}
    if ctx.unit is not None:
        body.setdefault("unit", ctx.unit.id)
    job = f"{ctx.job}.{phase}" if phase else ctx.job
    outcome = host_of(ctx).perform(
        OperationRequest(VERB, {"verb": verb, "request": body, "job": job, **place(ctx)}, job),
        timeout=ctx.deadline,
        on_event=ctx.emit,
    )
    return outcome.result if isinstance(outcome.result, dict) else {}
