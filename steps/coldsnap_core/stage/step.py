from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from coldsnap.sdk import (
    Action,
    Change,
    ColdSnapError,
    FactRequest,
    OperationRequest,
    Outputs,
    Row,
    Scope,
    Seen,
    Step,
    StepContext,
    unchanged,
)
from coldsnap_core.captures import short
from coldsnap_core.stage.spec import StageSpec
from coldsnap_core.target import VERB, host_of, place, runtime_of, state_dir

_FACT = "coldsnap_core.facts:PackStaged"
_OPERATION = "coldsnap_core.operations:runtime_staged"
_OLDEST_PYTHON = (3, 10)


class Stage(Step[StageSpec]):
    type = "core.stage"
    summary = "bring the runtime pack to the host, verified, once per digest"
    spec = StageSpec
    scope = Scope.HOST
    outputs: ClassVar = {"pack": "folder of the runtime pack on the host"}

    def reads(self, spec: StageSpec, ctx: StepContext) -> Sequence[FactRequest]:
        del spec
        return (FactRequest(_FACT, place(ctx)),)

    def observe(self, spec: StageSpec, ctx: StepContext) -> Seen:
        seen: Seen = host_of(ctx).ask(self.reads(spec, ctx)[0])
        return seen

    def diff(self, spec: StageSpec, seen: Seen, ctx: StepContext) -> Change:
        del spec
        _admit(seen, ctx)
        runtime = runtime_of(ctx)
        row = f"{short(runtime.digest)}  {runtime.archive_bytes / 2**20:.0f} MiB"
        if seen.get("valid"):
            return unchanged("runtime pack present", Row(Action.NONE, "runtime pack", row))
        action = Action.CHANGE if seen.get("staged") else Action.CREATE
        summary = "replace a damaged runtime pack" if seen.get("staged") else "stage runtime pack"
        return Change(action, summary, (Row(action, "runtime pack", row),))

    def apply(self, spec: StageSpec, change: Change, ctx: StepContext) -> Outputs:
        del change
        runtime, where = runtime_of(ctx), place(ctx)
        remote = f"{state_dir(ctx)}/runtime/incoming/{runtime.archive_sha256[7:23]}.{ctx.run}.tar"
        host = host_of(ctx)
        host.upload(Path(runtime.archive), remote, sha256=runtime.archive_sha256, on_event=ctx.emit)
        host.perform(
            OperationRequest(_OPERATION, {**where, "archive": remote}), timeout=ctx.deadline
        )
        # Older versions go, except those that live units run from.
        request = {"newest": max(spec.keep, 1)}
        arguments = {"verb": "pack.gc", "request": request, **where}
        host.perform(OperationRequest(VERB, arguments), timeout=ctx.deadline)
        return {"pack": where["pack"]}

    def known(self, spec: StageSpec, seen: Seen, ctx: StepContext) -> Outputs:
        del spec, seen
        return {"pack": place(ctx)["pack"]}


def _admit(seen: Seen, ctx: StepContext) -> None:
    """Refuse a host on which nothing that follows could work.

    Raises:
        ColdSnapError: ``host.no-python``, ``host.old-python``, ``host.not-root``.
    """
    python = str(seen.get("python") or "none")
    if python == "none":
        raise ColdSnapError(
            "host.no-python",
            f"{place(ctx)['python']} does not run on this host",
            ctx.where,
            remedy="install Python 3.10 or newer, or set the host variable python",
        )
    version = tuple(int(part) for part in python.split("."))
    if version < _OLDEST_PYTHON:
        raise ColdSnapError(
            "host.old-python",
            f"Python {python} is too old: the runtime pack needs 3.10",
            ctx.where,
            remedy="install Python 3.10 or newer, or set the host variable python",
        )
    if seen.get("uid") != 0:
        raise ColdSnapError(
            "host.not-root",
            f"the connection runs as uid {seen.get('uid')}; snapshots need root",
            ctx.where,
            remedy="set sudo: true for the host in the inventory, or connect as root",
        )
