"""Where a restored engine's weights come from, by policy, each choice with its reason.

``native``: the payload pack of the artifact; ``recovery``: the model's own files, replayed into
the captured layout by the engine; ``auto``: native, else recovery. A payload that is missing or
damaged costs the payload under auto, and the restore under native.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.oci.layout import open_store
from coldsnap.artifact.oci.quarantine import condemn
from coldsnap.artifact.pack_index import PAYLOAD_REMEDY
from coldsnap_runtime.mapped_files import DigestCache
from coldsnap_runtime.model_files import model_fault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldsnap.artifact.oci.materialise import Payload
    from coldsnap_runtime.context import Context
    from coldsnap_runtime.image_folders import Image
    from coldsnap_runtime.unit_requests import Mount

POLICIES = ("auto", "native", "recovery")
_WANTED: dict[str, Payload] = {"auto": "optional", "native": "required", "recovery": "none"}
_DAMAGE = (
    "pack.chunk-differs",
    "pack.padding",
    "pack.extent-differs",
    "pack.body-differs",
    "pack.short",
)
"""Codes of a pack whose bytes are not those that were written."""
_MAX_REASON = 500


@dataclass(frozen=True)
class Fault:
    provider: str
    code: str
    reason: str


@dataclass(frozen=True)
class Choice:
    """What the engine is told, and why."""

    policy: str
    allowed: str
    """``native``, ``recovery``, or ``auto``: native, else recovery."""
    faults: tuple[Fault, ...] = ()
    used: str = ""
    """``native``, ``recovery``, or ``image``: the weights were in the process image."""
    payload: str = ""
    """Digest of the pack that was laid out."""
    store: str = ""

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "faults": [vars(fault) for fault in self.faults]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Choice:
        known = {name: str(value.get(name) or "") for name in ("used", "payload", "store")}
        faults = tuple(Fault(**fault) for fault in value.get("faults") or ())
        policy = str(value.get("policy") or "auto")
        return cls(policy, str(value.get("allowed") or policy), faults, **known)


def policy_of(value: Mapping[str, Any], verb: str) -> str:
    """Field ``provider`` of a request. Raises ColdSnapError ``request.invalid``."""
    policy = value.get("provider") or "auto"
    if policy not in POLICIES:
        raise ColdSnapError(
            "request.invalid", f"{verb}: provider must be one of {', '.join(POLICIES)}"
        )
    return str(policy)


def payload_of(policy: str) -> Payload:
    """How a policy wants the artifact's payload."""
    return _WANTED[policy]


def choose(
    policy: str, image: Image, mounts: Sequence[Mount], context: Context, store: str = ""
) -> Choice:
    """Which providers may be used for an artifact that is laid out; asked before anything starts.

    Raises:
        ColdSnapError: ``recovery.model-changed``, ``recovery.model-missing``,
            ``provider.none-works``.
    """
    choice = Choice(policy, policy, payload=image.payload_sha256, store=store)
    if policy == "native":
        return choice
    native = image.payload_fault
    recovery = _recovery_fault(image, mounts, context)
    if native is not None:
        choice = replace(choice, allowed="recovery", faults=(_fault("native", native),))
    if recovery is None:
        return _told(choice, context)
    choice = replace(choice, faults=(*choice.faults, _fault("recovery", recovery)))
    if policy == "recovery":
        raise recovery
    if image.payloads:
        return _told(replace(choice, allowed="native"), context)
    if native is None and image.has_weights:
        return choice
    if native is None:
        raise recovery
    raise ColdSnapError(
        "provider.none-works",
        "the weights can come neither from the payload nor from the model's folder",
        details=tuple(f"{f.provider}: {f.reason} ({f.code})" for f in choice.faults),
        remedy="publish the payload again, or put the model's folder back",
    )


def after(choice: Choice, answers: Sequence[Any], context: Context, unit: str) -> Choice:
    """What the engine made of it, from the answers to its calls; damage is remembered."""
    said = next((a for a in answers if isinstance(a, dict) and "provider" in a), {})
    used = str(said.get("provider") or "") or _implied(choice)
    choice = replace(choice, used=used)
    if used == "recovery" and choice.allowed == "auto" and said.get("provider_reason"):
        code = str(said.get("provider_code") or "provider.failed")
        reason = str(said["provider_reason"])[:_MAX_REASON]
        choice = replace(choice, faults=(*choice.faults, Fault("native", code, reason)))
        context.log(f"unit {unit}: payload not used ({code}): {reason}; weights from the model")
        remember_damage(choice, code, reason, context)
    return choice


def failed(choice: Choice, error: ColdSnapError, context: Context) -> ColdSnapError:
    """Of a hydration: damage is remembered; where only the payload was allowed, it is the error."""
    said = "; ".join((error.message, *error.details))
    remember_damage(choice, error.code, said, context)
    damage = _damage(error.code, said)
    if not damage or choice.allowed != "native" or error.code == damage:
        return error
    return ColdSnapError(
        damage,
        f"the payload is damaged: {error.message}",
        error.where,
        details=error.details,
        remedy=PAYLOAD_REMEDY,
    )


def remember_damage(choice: Choice, code: str, reason: str, context: Context) -> None:
    """Quarantine the pack if `code` or `reason` says that its bytes are damaged."""
    if not choice.payload or not choice.store:
        return
    if not _damage(code, reason):
        return
    if condemn(open_store(Path(choice.store)), choice.payload, f"{code}: {reason}"):
        context.log(f"payload {choice.payload[:19]}.. is quarantined")


def _damage(code: str, reason: str) -> str:
    """The code of a damaged pack that is `code`, or that an engine wrote into `reason`."""
    if code in _DAMAGE:
        return code
    return next((known for known in _DAMAGE if known in reason), "")


def _implied(choice: Choice) -> str:
    """For engines that say nothing."""
    if choice.allowed == "recovery":
        return "recovery"
    return "native" if choice.payload else "image"


def _recovery_fault(
    image: Image, mounts: Sequence[Mount], context: Context
) -> ColdSnapError | None:
    cache = None
    if image.model_files and image.model_files.get("digests"):
        cache = DigestCache(Path(context.path("library-digests.json")))
    fault = model_fault(image.model_files, mounts, cache)
    if cache is not None:
        cache.save()
    return fault


def _fault(provider: str, error: ColdSnapError) -> Fault:
    return Fault(provider, error.code, error.message[:_MAX_REASON])


def _told(choice: Choice, context: Context) -> Choice:
    for fault in choice.faults:
        context.log(f"provider {fault.provider} is out ({fault.code}): {fault.reason}")
    return choice
