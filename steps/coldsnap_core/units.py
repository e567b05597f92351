"""Generations of a unit, as the target reports them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coldsnap.sdk import ColdSnapError, FactRequest, Seen, StepContext
from coldsnap_core.launching import mounts_of
from coldsnap_core.target import ask, question

LIVE = frozenset({"starting", "serving", "quiesced", "restored", "hydrated", "sleeping"})

_MAPPED = "mmap"


@dataclass(frozen=True)
class Generation:
    number: int
    state: str
    launch_sha256: str
    artifact: str
    """Digest of the manifest it was restored from; empty after a cold start."""
    exposed: bool
    ports: tuple[tuple[int, str, int], ...] = ()
    """(inner, host, port) of each."""
    rung: str = ""
    """By which its image was restored; empty after a cold start, or where that is not told."""

    @property
    def is_live(self) -> bool:
        return self.state in LIVE


def status_question(ctx: StepContext, *, details: bool = False) -> FactRequest:
    """`details`: also what unit.hydrate and unit.accept said of each live generation."""
    return question(ctx, "unit.status", _request(ctx, details=details))


def observe_unit(ctx: StepContext, *, detail: str = "") -> dict[str, Any]:
    """What matters of each live or dead generation, without clocks, for `Seen`.

    `detail`: ``hydrated`` or ``accepted``, kept too.
    """
    answer = ask(ctx, "unit.status", _request(ctx, details=bool(detail)))
    keep = ["generation", "state", "launch_sha256", "artifact", "exposed", "ports"]
    units = [{key: unit.get(key) for key in keep} for unit in answer.get("units") or []]
    for row, unit in zip(units, answer.get("units") or [], strict=True):
        if detail and unit.get(detail):
            row[detail] = unit[detail]
        if unit.get("rung") == _MAPPED:
            row["rung"] = _MAPPED
    return {"staged": answer.get("staged", True), "generations": units}


def _request(ctx: StepContext, *, details: bool) -> dict[str, Any]:
    request: dict[str, Any] = {"unit": ctx.unit.id if ctx.unit else None}
    # A pack of another version, which may be there before staging, need not know the field.
    return {**request, "details": True} if details else request


def placed_question(ctx: StepContext) -> FactRequest:
    """As `status_question`, and whether the unit's ports and folders can be had there."""
    return question(ctx, "unit.status", _placed(ctx))


def observe_placed(ctx: StepContext) -> dict[str, Any]:
    """As `observe_unit`, with `place` as the target tells it where it can."""
    seen = observe_unit(ctx)
    try:
        answer = ask(ctx, "unit.status", _placed(ctx))
    except ColdSnapError as error:
        if error.code != "request.invalid":
            raise
        return seen  # a pack of another version, before this one is staged
    return {**seen, "place": answer["place"]} if answer.get("place") else seen


def _placed(ctx: StepContext) -> dict[str, Any]:
    unit = ctx.unit
    ports = [
        {"host": port.host, "port": port.port or port.inner}
        for port in (unit.ports if unit and unit.network == "private" else ())
    ]
    folders = [str(mount["source"]) for mount in mounts_of(ctx)] if unit else []
    return {**_request(ctx, details=False), "place": {"ports": ports, "folders": folders}}


def admit_place(seen: Seen, ctx: StepContext) -> None:
    """Refuse what is to be started where it cannot be, before anything is.

    Raises:
        ColdSnapError: ``launch.folder-missing``, ``expose.port-taken``.
    """
    place = seen.get("place") or {}
    if missing := place.get("missing"):
        raise ColdSnapError(
            "launch.folder-missing",
            f"{missing[0]} is not on this host",
            ctx.where,
            details=tuple(f"{folder} neither" for folder in missing[1:5]),
            remedy="bring it there, or name the place where it is: model.path, or the source of "
            "a mount of the unit",
        )
    for port in place.get("taken") or ():
        raise ColdSnapError(
            "expose.port-taken",
            f"port {port['port']} of {port['host']} is taken by another program",
            ctx.where,
            details=("nothing was started",),
            remedy="free the port (ss -ltnp shows who holds it), or set another port in the plan",
        )


def detail(seen: Seen, number: int | None, name: str) -> Mapping[str, Any]:
    """What is kept of `name` (see `observe_unit`) for a generation; empty if nothing is."""
    found = chosen(seen, number)
    for item in seen.get("generations", ()):
        if found is not None and item.get("generation") == found.number:
            kept = item.get(name)
            return kept if isinstance(kept, Mapping) else {}
    return {}


def generations(seen: Seen) -> list[Generation]:
    """Generations in `seen`, newest first."""
    found = [_generation(item) for item in seen.get("generations", ())]
    return sorted(found, key=lambda generation: -generation.number)


def _generation(item: Mapping[str, Any]) -> Generation:
    return Generation(
        number=int(item.get("generation") or 0),
        state=str(item.get("state") or ""),
        launch_sha256=str(item.get("launch_sha256") or ""),
        artifact=str(item.get("artifact") or ""),
        exposed=bool(item.get("exposed")),
        ports=tuple((p["inner"], p["host"], p["port"]) for p in item.get("ports") or ()),
        rung=str(item.get("rung") or ""),
    )


def live(seen: Seen) -> list[Generation]:
    """Live generations, newest first."""
    return [generation for generation in generations(seen) if generation.is_live]


def chosen(seen: Seen, number: int | None) -> Generation | None:
    """The generation `number`, or the newest live one."""
    found = live(seen)
    if number is None:
        return found[0] if found else None
    return next((item for item in generations(seen) if item.number == number), None)


def acted_on(seen: Seen, number: int | None, ctx: StepContext) -> Generation | None:
    """As `chosen`; None only in a preview, where one may be to come.

    Raises:
        ColdSnapError: ``unit.not-running``.
    """
    generation = chosen(seen, number)
    if generation is None and ctx.run:
        raise ColdSnapError(
            "unit.not-running",
            "no generation of the unit runs",
            ctx.where,
            remedy="start it first: a core.launch or core.restore step among the needs",
        )
    return generation


def named(number: int | None) -> dict[str, int]:
    """The field of a request that names a generation; without it the newest live one is meant."""
    return {} if number is None else {"generation": number}


def refuse_mapped(generation: Generation | None, ctx: StepContext) -> None:
    """Raises ColdSnapError ``checkpoint.image-mapped``, before anything is paused for the dump."""
    if generation is not None and generation.rung == _MAPPED:
        raise ColdSnapError(
            "checkpoint.image-mapped",
            f"generation {generation.number} maps the image that it was restored from "
            "(image_mode: mmap)",
            ctx.where,
            cause="a dump would hold only what was written since, and need that image for ever",
            remedy="restore the unit with image_mode: ext, then capture that generation",
        )


def placed_as_planned(ctx: StepContext, generation: Generation) -> bool:
    """Whether its ports are where the plan wants them; one that tells none is believed."""
    if ctx.unit is None or not generation.ports:
        return True
    wanted = {(port.inner, port.host, port.port or port.inner) for port in ctx.unit.ports}
    return wanted == set(generation.ports)
