from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from coldsnap.sdk import (
    Action,
    Change,
    ColdSnapError,
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
from coldsnap_core.launching import model_of
from coldsnap_core.page_cache.spec import PageCacheSpec
from coldsnap_core.target import command, store_path


class PageCache(Step[PageCacheSpec]):
    type = "core.page-cache"
    summary = "files into the host's page cache, or all out of it, so that measurements compare"
    spec = PageCacheSpec
    scope = Scope.HOST
    reversible = False
    outputs: ClassVar = {"bytes": "read into the page cache", "timing": "spans"}

    def reads(self, spec: PageCacheSpec, ctx: StepContext) -> Sequence[FactRequest]:
        del spec, ctx
        return ()

    def observe(self, spec: PageCacheSpec, ctx: StepContext) -> Seen:
        """Nothing: what is in the page cache may change at any time."""
        del spec, ctx
        return {}

    def diff(self, spec: PageCacheSpec, seen: Seen, ctx: StepContext) -> Change:
        del seen
        if spec.state == "as-is":
            return unchanged("left as it is")
        if spec.state == "dropped":
            row = Row(Action.CHANGE, "page cache", "dropped: whatever reads files is slow after it")
            return Change(Action.CHANGE, "drop the page cache", (row,))
        named = [short(ref) for ref in spec.artifacts]
        named += _folders(spec, ctx)
        if not named:
            raise ColdSnapError(
                "cache.nothing-named",
                "nothing says which files shall be in the page cache",
                ctx.where,
                remedy="give artifacts:, or model: true for a model with a folder",
            )
        rows = tuple(Row(Action.CHANGE, "page cache", f"reads {name}") for name in named)
        return Change(Action.CHANGE, "read files into the page cache", rows)

    def apply(self, spec: PageCacheSpec, change: Change, ctx: StepContext) -> Outputs:
        del change
        if spec.state == "dropped":
            result = command(ctx, "page-cache", {"state": "dropped"})
            return {"bytes": 0, "timing": result.get("timing")}
        total, timing = 0, None
        requests: list[dict[str, Any]] = [
            {"artifact": ref, "store": store_path(ctx)} for ref in spec.artifacts
        ]
        if folders := _folders(spec, ctx):
            requests.append({"folders": folders})
        for number, request in enumerate(requests):
            made = command(ctx, "page-cache", {"state": "warm", **request}, phase=str(number))
            total += int(made.get("bytes") or 0)
            timing = made.get("timing")
        return {"bytes": total, "timing": timing}

    def known(self, spec: PageCacheSpec, seen: Seen, ctx: StepContext) -> Outputs:
        del spec, seen, ctx
        return {"bytes": 0, "timing": None}


def _folders(spec: PageCacheSpec, ctx: StepContext) -> list[str]:
    path = model_of(ctx).path
    return [path] if spec.model and path else []
