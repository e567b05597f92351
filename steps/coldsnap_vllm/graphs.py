"""What becomes of vLLM's CUDA graphs in a snapshot: ``COLDSNAP_GRAPHS`` in the unit's ``env:``."""

from __future__ import annotations

from coldsnap.sdk import ColdSnapError, Unit

VARIABLE = "COLDSNAP_GRAPHS"
POLICIES = ("preserve-exec", "recreate-from-plan", "disabled")
_EAGER = "--enforce-eager"


def graph_policy(unit: Unit, command: tuple[str, ...]) -> str:
    """The unit's policy; a command that is eager already has no graphs.

    Raises:
        ColdSnapError: ``vllm.graph-policy``.
    """
    wanted = unit.env.get(VARIABLE, "disabled" if _EAGER in command else POLICIES[0])
    if wanted not in POLICIES or (_EAGER in command and wanted != "disabled"):
        raise ColdSnapError(
            "vllm.graph-policy",
            f"{VARIABLE}={wanted} cannot be done"
            + (f" with {_EAGER}" if wanted in POLICIES else ""),
            f"unit {unit.id}",
            remedy=f"write one of {', '.join(POLICIES)} (with {_EAGER} only disabled)",
        )
    return wanted


def graph_options(policy: str, command: tuple[str, ...]) -> tuple[str, ...]:
    """What the policy adds to vLLM's command."""
    return (_EAGER,) if policy == "disabled" and _EAGER not in command else ()
