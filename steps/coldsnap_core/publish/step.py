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
    Seen,
    Step,
    StepContext,
    unchanged,
)
from coldsnap_core.captures import capture_question, captured, observe_capture, short
from coldsnap_core.publish.description import describe
from coldsnap_core.publish.spec import PublishSpec
from coldsnap_core.target import ask, command, question, store_path


class Publish(Step[PublishSpec]):
    type = "core.publish"
    summary = "put a capture into the store as one content-addressed artifact"
    spec = PublishSpec
    outputs: ClassVar = {
        "artifact": "digest of the manifest",
        "bytes_added": "bytes that were not in the store",
    }

    def reads(self, spec: PublishSpec, ctx: StepContext) -> Sequence[FactRequest]:
        return (
            capture_question(ctx),
            question(ctx, "store.resolve", {"store": store_path(ctx), "ref": spec.name}),
        )

    def observe(self, spec: PublishSpec, ctx: StepContext) -> Seen:
        request = {"store": store_path(ctx), "ref": spec.name}
        seen = observe_capture(ctx)
        seen["tagged"] = str(ask(ctx, "store.resolve", request).get("manifest") or "")
        return seen

    def diff(self, spec: PublishSpec, seen: Seen, ctx: StepContext) -> Change:
        if captured(seen) and captured(seen) == seen.get("tagged"):
            row = Row(Action.NONE, "artifact", f"{spec.name}  {short(captured(seen))}")
            return unchanged("published already", row)
        if ctx.run and spec.capture is None and not captured(seen):
            raise ColdSnapError(
                "publish.nothing-captured",
                "there is no capture to publish",
                ctx.where,
                remedy="give capture: the output of a core.checkpoint step",
            )
        action = Action.CHANGE if seen.get("tagged") else Action.CREATE
        return Change(action, f"publish {spec.name}", (Row(action, "artifact", spec.name),))

    def apply(self, spec: PublishSpec, change: Change, ctx: StepContext) -> Outputs:
        del change
        request: dict[str, Any] = {"store": store_path(ctx), "tags": [spec.name]}
        if spec.capture is None:
            manifest = captured(self.observe(spec, ctx))
            command(ctx, "store.tag", {**request, "manifest": manifest})
            return {"artifact": manifest, "bytes_added": 0}
        request["capture_dir"] = spec.capture["capture_dir"]
        request["descriptor"] = describe(spec, ctx)
        result = command(ctx, "store.publish", request)
        return {"artifact": result["manifest"], "bytes_added": result.get("bytes_added", 0)}

    def recover(self, spec: PublishSpec, seen: Seen, ctx: StepContext) -> None:
        """Give the name back to the artifact that had it; blobs go with the next collection."""
        before = str(seen.get("tagged") or "")
        request = {"store": store_path(ctx), "tags": [spec.name], "manifest": before or None}
        command(ctx, "store.tag", request, phase="undo")

    def known(self, spec: PublishSpec, seen: Seen, ctx: StepContext) -> Outputs:
        del spec, ctx
        return {"artifact": captured(seen), "bytes_added": 0}
