from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from coldsnap.sdk import (
    Action,
    Change,
    ColdSnapError,
    FactRequest,
    JobEvent,
    Outputs,
    Row,
    Seen,
    Step,
    StepContext,
    unchanged,
)
from coldsnap_core.accept.request import questions
from coldsnap_core.captures import short, size
from coldsnap_core.hydrate.request import hydration
from coldsnap_core.launching import mounts_of, unit_of
from coldsnap_core.restore.admission import admit, admit_capsule, admit_payload
from coldsnap_core.restore.cold import may_start_cold, provider, start_cold
from coldsnap_core.restore.spec import RestoreSpec
from coldsnap_core.target import ask, checked, command, host_of, place, question, store_path
from coldsnap_core.units import (
    Generation,
    admit_place,
    live,
    observe_placed,
    observe_unit,
    placed_as_planned,
    placed_question,
    status_question,
)

_PROFILE = "coldsnap_core.facts:HostProfile"
_SUMMARIES = {
    "restore": "restore the process tree",
    "hydrate": "restore the process tree and hydrate it",
    "accept": "restore the process tree, hydrate it, demand the recorded answers",
}


class Restore(Step[RestoreSpec]):
    type = "core.restore"
    summary = "bring a captured unit back as a new generation, verified before CRIU sees it"
    spec = RestoreSpec
    outputs: ClassVar = {
        "generation": "number of the restored process tree",
        "artifact": "digest of the manifest; empty after a cold start",
        "provider": "policy, used (native, recovery, image or cold), faults[provider, code, "
        "reason]; null when it served already",
        "expected": "recorded answers, for core.accept",
        "cold_start_seconds": "cold start to the first token at capture, if it was measured",
        "cold_start": "its phases: seconds, phases[name, start, seconds, depth]",
        "sizes": "bytes by kind, as the capture counted them",
        "process_image": "how its pages came: rung, bytes, gib_per_second, threads, pages_checked, "
        "left[rung, code, reason]",
        "timing": "spans",
    }

    def reads(self, spec: RestoreSpec, ctx: StepContext) -> Sequence[FactRequest]:
        return (
            status_question(ctx),
            placed_question(ctx),
            question(ctx, "store.resolve", _reference(spec, ctx)),
            FactRequest(_PROFILE, place(ctx)),
        )

    def observe(self, spec: RestoreSpec, ctx: StepContext) -> Seen:
        seen = observe_placed(ctx)
        found = ask(ctx, "store.resolve", _reference(spec, ctx))
        seen["manifest"] = found.get("manifest") or ""
        seen["descriptor"] = _essentials(found.get("descriptor") or {})
        seen["payload_fault"] = found.get("payload_fault")
        seen["capsule_fault"] = found.get("capsule_fault")
        profile = checked(ctx, host_of(ctx).ask(FactRequest(_PROFILE, place(ctx))))
        seen["identity"] = profile.get("identity", {})
        return seen

    def diff(self, spec: RestoreSpec, seen: Seen, ctx: StepContext) -> Change:
        manifest = str(seen["manifest"])
        if not manifest:
            if not ctx.run and not seen.get("staged", True):
                return Change(Action.UNKNOWN, "restore", (Row(Action.UNKNOWN, "capsule", ""),))
            return _cold_or_raise(spec, _missing(spec, ctx))
        same = _serving(seen, manifest, ctx)
        if same is not None:
            return unchanged(
                f"generation {same.number} serves it", Row(Action.NONE, "capsule", short(manifest))
            )
        admit_place(seen, ctx)
        try:
            admit_capsule(seen, ctx.where)
            admit(seen["descriptor"], seen["identity"], ctx.where)
        except ColdSnapError as error:
            return _cold_or_raise(spec, error)
        rows = _rows(manifest, seen["descriptor"], spec, admit_payload(spec, seen, ctx.where))
        return Change(Action.CREATE, _SUMMARIES[spec.through], rows, data={"manifest": manifest})

    def apply(self, spec: RestoreSpec, change: Change, ctx: StepContext) -> Outputs:
        request = {
            "store": store_path(ctx),
            "artifact": change.data["manifest"],
            "ports": [port.model_dump() for port in unit_of(ctx).ports],
            "mounts": mounts_of(ctx),
            "verify": spec.verify,
            "image_mode": spec.image_mode,
            "deadline": spec.deadline,
            "criu": f"{place(ctx)['pack']}/criu/criu",
            "expose": False,
            "provider": spec.provider,
        }
        if unit_of(ctx).devices:
            request["devices"] = list(unit_of(ctx).devices)
        if spec.through != "restore":
            request["then"] = _then(spec, ctx)
        try:
            if "cold" in change.data:
                raise ColdSnapError.from_json(change.data["cold"])
            result = command(ctx, "unit.restore", request)
        except ColdSnapError as error:
            if not spec.cold_start or not may_start_cold(error):
                raise
            return self._cold(spec, error, ctx)
        return _outputs(int(result["generation"]), change.data["manifest"], result)

    def _cold(self, spec: RestoreSpec, error: ColdSnapError, ctx: StepContext) -> Outputs:
        ctx.emit(JobEvent("log", f"starting cold: {error.message} ({error.code})"))
        started = start_cold(ctx, error)
        found = ask(ctx, "store.resolve", _reference(spec, ctx))
        recorded = (found.get("descriptor") or {}).get("extensions") or {}
        result = {
            "recorded": recorded,
            "provider": provider(spec.provider, error),
            "timing": started.get("timing"),
        }
        return _outputs(int(started["generation"]), "", result)

    def recover(self, spec: RestoreSpec, seen: Seen, ctx: StepContext) -> None:
        """Stop every generation that was not there before."""
        del spec
        before = {item.number for item in live(seen)}
        for generation in live(observe_unit(ctx)):
            if generation.number not in before:
                request = {"generation": generation.number, "grace": 0}
                command(ctx, "unit.stop", request, phase=f"undo.{generation.number}")

    def stands(self, spec: RestoreSpec, seen: Seen, outputs: Outputs, ctx: StepContext) -> bool:
        """While its generation lives, in whatever state a later step was cut off."""
        del spec, ctx
        mine = (outputs.get("generation"), outputs.get("artifact"))
        return any((item.number, item.artifact) == mine for item in live(seen))

    def known(self, spec: RestoreSpec, seen: Seen, ctx: StepContext) -> Outputs:
        same = _serving(seen, str(seen["manifest"]), ctx)
        found = ask(ctx, "store.resolve", _reference(spec, ctx))
        recorded = (found.get("descriptor") or {}).get("extensions") or {}
        result = {"recorded": recorded, "provider": None, "timing": None}
        return _outputs(same.number if same else None, str(seen["manifest"]), result)


def _reference(spec: RestoreSpec, ctx: StepContext) -> dict[str, Any]:
    return {"store": store_path(ctx), "ref": spec.artifact}


def _serving(seen: Seen, manifest: str, ctx: StepContext) -> Generation | None:
    """The generation that is what the plan wants, ports included; a changed port is a restore."""
    return next(
        (
            generation
            for generation in live(seen)
            if generation.artifact == manifest
            and generation.state in {"serving", "sleeping"}
            and placed_as_planned(ctx, generation)
        ),
        None,
    )


def _missing(spec: RestoreSpec, ctx: StepContext) -> ColdSnapError:
    return ColdSnapError(
        "restore.artifact-missing",
        f"the store holds no artifact {spec.artifact!r}",
        ctx.where,
        details=(f"store: {store_path(ctx)}",),
        remedy="capture it first, or look what is there: coldsnap artifact list",
    )


def _cold_or_raise(spec: RestoreSpec, error: ColdSnapError) -> Change:
    if not spec.cold_start:
        raise error
    row = Row(Action.CREATE, "process tree", f"cold start: {error.message}")
    data = {"manifest": "", "cold": error.to_json()}
    return Change(Action.CREATE, "start the engine cold", (row,), data=data)


def _rows(
    manifest: str, descriptor: Mapping[str, Any], spec: RestoreSpec, fault: str
) -> tuple[Row, ...]:
    capsule = f"{short(manifest)}  {size(int(descriptor['bytes']))}"
    rows: tuple[Row, ...] = (Row(Action.CREATE, "capsule", capsule),)
    if payload := int(descriptor.get("payload_bytes") or 0):
        kept = size(payload) if spec.provider != "recovery" else "not used: provider recovery"
        action = Action.CHANGE if fault else Action.NONE
        rows = (*rows, Row(action, "payload", f"{kept}{fault}"))
    if spec.cold_start:
        rows = (*rows, Row(Action.NONE, "last resort", "cold start"))
    return rows


def _essentials(descriptor: Mapping[str, Any]) -> dict[str, Any]:
    """What admission compares; the whole descriptor would only swell the journal."""
    compatibility = descriptor.get("compatibility") or {}
    units = compatibility.get("units") or [{}]
    extensions = descriptor.get("extensions") or {}
    objects = (descriptor.get("capsule") or {}).get("objects") or []
    payloads = (descriptor.get("weights") or {}).get("model_payloads") or {}
    return {
        "driver": (descriptor.get("snapshot_driver") or {}).get("id", ""),
        "architecture": units[0].get("architecture", ""),
        "cpu_flags": extensions.get("cpu_flags", []),
        "devices": units[0].get("devices") or [],
        "nvidia_driver_min": units[0].get("nvidia_driver_min", ""),
        "bytes": _sum(objects),
        "payload_bytes": _sum(payloads.get("objects") or []),
        "engine": (descriptor.get("launch") or {}).get("engine", ""),
    }


def _then(spec: RestoreSpec, ctx: StepContext) -> dict[str, Any]:
    """What the target goes on with by itself."""
    then: dict[str, Any] = {"hydrate": hydration(ctx, spec.ready_timeout)}
    if spec.through == "accept":
        then["accept"] = questions(ctx)
    return then


def _outputs(generation: int | None, manifest: str, result: Mapping[str, Any]) -> Outputs:
    """From the answer of unit.restore, or what stands for one."""
    recorded = result.get("recorded") or {}
    return {
        "generation": generation,
        "artifact": manifest,
        "provider": result.get("provider"),
        "process_image": result.get("process_image"),
        "expected": recorded.get("answers") or [],
        "cold_start_seconds": recorded.get("cold_start_seconds"),
        "sizes": recorded.get("sizes") or {},
        "cold_start": recorded.get("cold_start") or (recorded.get("notes") or {}).get("cold-start"),
        "timing": result.get("timing"),
    }


def _sum(objects: Sequence[Mapping[str, Any]]) -> int:
    return sum(int(item.get("bytes") or 0) for item in objects)
