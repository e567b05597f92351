"""Whether this plan's request has been captured already: then a capture has nothing to do."""

from __future__ import annotations

from typing import Any

from coldsnap.artifact.canonical import digest
from coldsnap.sdk import Action, FactRequest, Row, Seen, StepContext
from coldsnap_core.target import ask, question, store_path


def request_sha256(ctx: StepContext) -> str:
    """Digest of the resolved request; of a plan with several units, bound to this unit."""
    topology = ctx.plan.topology
    if ctx.unit is None or topology is None or len(topology.units) <= 1:
        return ctx.plan.request_sha256
    return digest({"request": ctx.plan.request_sha256, "unit": ctx.unit.id})


def capture_question(ctx: StepContext) -> FactRequest:
    return question(ctx, "store.resolve", _request(ctx))


def observe_capture(ctx: StepContext) -> dict[str, Any]:
    """``{"captured": digest of the manifest or ""}``, with ``model_changed`` where it has."""
    answer = ask(ctx, "store.resolve", _request(ctx))
    seen = {"captured": str(answer.get("manifest") or "")}
    if changed := answer.get("model_changed"):
        seen["model_changed"] = str(changed)
    return seen


def _request(ctx: StepContext) -> dict[str, Any]:
    return {"store": store_path(ctx), "request_sha256": request_sha256(ctx)}


def captured(seen: Seen) -> str:
    return str(seen.get("captured") or "")


def model_row(seen: Seen) -> tuple[Row, ...]:
    """What a preview says where the model is not what it was when it was captured."""
    changed = seen.get("model_changed")
    if not changed:
        return ()
    help_ = "give it another id or path, or delete the artifact, to capture it anew"
    return (Row(Action.CHANGE, "model", f"{changed}; {help_}"),)


def short(digest_text: str) -> str:
    """``sha256:9be1f00d..`` for people."""
    algorithm, _, value = digest_text.partition(":")
    return f"{algorithm}:{value[:12]}.." if value else digest_text


def size(count: int) -> str:
    """``1.9 GiB``, ``27 MiB``."""
    return f"{count / 2**30:.1f} GiB" if count >= 1 << 30 else f"{count / 2**20:.0f} MiB"
