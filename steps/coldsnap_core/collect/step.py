from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from coldsnap.sdk import (
    Action,
    Change,
    FactRequest,
    Outputs,
    Row,
    Scope,
    Seen,
    Step,
    StepContext,
    unchanged,
)
from coldsnap_core.captures import short
from coldsnap_core.collect.spec import CollectSpec
from coldsnap_core.target import ask, command, question, store_path


class Collect(Step[CollectSpec]):
    type = "core.collect"
    summary = "retention: keep the newest artifacts of each name, remove what nothing refers to"
    spec = CollectSpec
    scope = Scope.HOST
    reversible = False
    outputs: ClassVar = {"removed": "digests of removed artifacts", "bytes": "bytes freed"}

    def reads(self, spec: CollectSpec, ctx: StepContext) -> Sequence[FactRequest]:
        return (question(ctx, "store.collect", self._request(spec, ctx, dry_run=True)),)

    def observe(self, spec: CollectSpec, ctx: StepContext) -> Seen:
        answer = ask(ctx, "store.collect", self._request(spec, ctx, dry_run=True))
        seen = {"removed": list(answer.get("removed") or []), "bytes": answer.get("bytes", 0)}
        ended = answer.get("ended")  # a pack of another version does not tell
        return {**seen, "ended": list(ended)} if ended else seen

    def diff(self, spec: CollectSpec, seen: Seen, ctx: StepContext) -> Change:
        del ctx
        removed = [str(item) for item in seen["removed"]]
        ended = [str(item) for item in seen.get("ended") or ()]
        if not removed and not ended:
            return unchanged(f"at most {spec.keep} artifacts of each name are there")
        rows = [Row(Action.STOP, "artifact", short(item)) for item in removed]
        rows += [Row(Action.STOP, "image", f"of ended generations of {unit}") for unit in ended]
        what = "remove old artifacts" if removed else "let go of what crashed units held"
        return Change(Action.STOP, what, tuple(rows))

    def apply(self, spec: CollectSpec, change: Change, ctx: StepContext) -> Outputs:
        del change
        answer = command(ctx, "store.collect", self._request(spec, ctx, dry_run=False))
        return {"removed": answer.get("removed", []), "bytes": answer.get("bytes", 0)}

    def known(self, spec: CollectSpec, seen: Seen, ctx: StepContext) -> Outputs:
        del spec, seen, ctx
        return {"removed": [], "bytes": 0}

    @staticmethod
    def _request(spec: CollectSpec, ctx: StepContext, *, dry_run: bool) -> dict[str, object]:
        return {"store": store_path(ctx), "keep": spec.keep, "dry_run": dry_run}
