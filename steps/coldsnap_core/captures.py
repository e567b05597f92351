"""Whether this plan's request has been captured already: then a capture has nothing to do."""

from __future__ import annotations

from typing import Any

from coldsnap.artifact.canonical import digest
from coldsnap.sdk import FactRequest, Seen, StepContext
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
    """``{"captured": digest of the manifest or ""}``."""
    answer = ask(ctx, "store.resolve", _request(ctx))
    return {"captured": str(answer.get("manifest") or "")}


def _request(ctx: StepContext) -> dict[str, Any]:
    return {"store": store_path(ctx), "request_sha256": request_sha256(ctx)}


def captured(seen: Seen) -> str:
    return str(seen.get("captured") or "")


def short(digest_text: str) -> str:
    """``sha256:9be1f00d..`` for people."""
    algorithm, _, value = digest_text.partition(":")
    return f"{algorithm}:{value[:12]}.." if value else digest_text


def size(count: int) -> str:
    """``1.9 GiB``, ``27 MiB``."""
    return f"{count / 2**30:.1f} GiB" if count >= 1 << 30 else f"{count / 2**20:.0f} MiB"
