"""The last resort of a restore, where the plan allows it: the unit is started cold."""

from __future__ import annotations

from typing import Any

from coldsnap.sdk import ColdSnapError, StepContext
from coldsnap_core.captures import request_sha256
from coldsnap_core.launching import launch_body, launch_sha256
from coldsnap_core.target import command, place

_NOT_THE_ARTIFACTS_FAULT = ("lease.", "job.", "request.", "internal.", "runtime.", "accept.")
READY_SECONDS = 1800.0


def may_start_cold(error: ColdSnapError) -> bool:
    """Whether a cold start can help; never after a failure that left something behind."""
    return not error.changed and not error.code.startswith(_NOT_THE_ARTIFACTS_FAULT)


def start_cold(ctx: StepContext, reason: ColdSnapError) -> dict[str, Any]:
    """Answer of ``unit.launch`` for a generation beside whatever serves; it is not exposed.

    Raises:
        ColdSnapError: as core.launch, with why the restore failed among its details.
    """
    body = launch_body(ctx, plain=True)
    body["ready"]["retry_seconds"] = READY_SECONDS
    body["criu"] = f"{place(ctx)['pack']}/criu/criu"
    digests = {"launch_sha256": launch_sha256(body), "request_sha256": request_sha256(ctx)}
    try:
        return command(ctx, "unit.launch", {**body, **digests, "expose": False}, phase="cold")
    except ColdSnapError as error:
        error.details = (*error.details, f"the restore had failed: {reason.message}")
        raise


def provider(policy: str, error: ColdSnapError) -> dict[str, Any]:
    """Output ``provider`` of such a restore."""
    fault = {"provider": "restore", "code": error.code, "reason": error.message}
    return {"policy": policy, "used": "cold", "faults": [fault]}
