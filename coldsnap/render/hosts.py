"""What hosts can do (``doctor``) and what runs on them (``status``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from coldsnap.render.columns import Cell, table
from coldsnap.render.palette import PLAIN, Palette, clean
from coldsnap.render.quantities import ago, plural, short_digest, size

if TYPE_CHECKING:
    from coldsnap.artifact.errors import ColdSnapError

_WORDS: Final = {
    "passed": ("yes", "good"),
    "failed": ("no", "error"),
    "unsupported": ("no", "warn"),
    "unqualified": ("untested", "warn"),
}
_MAX_COLUMNS: Final = 6
_DULL: Final = ("needs", "unix", "boottime")
"""Evidence for programs, not for people."""
_BYTES: Final = ("total", "available", "free")
_STATUS_HEAD: Final = (
    "UNIT", "HOST", "ENGINE", "MODEL", "GEN", "STATE", "SINCE", "MEMORY", "PORTS", "FROM"
)  # fmt: skip
_STATE_STYLES: Final = {
    "serving": "good",
    "quiesced": "warn",
    "starting": "hint",
    "sleeping": "hint",
    "dead": "error",
    "stopped": "dim",
}


@dataclass(frozen=True)
class HostAnswer:
    """What one host said, or why it said nothing."""

    host: str
    value: Mapping[str, Any]
    error: ColdSnapError | None = None


def doctor_text(answers: Sequence[HostAnswer], palette: Palette = PLAIN) -> str:
    """A table of hosts and abilities, and under it what each lacks and how to get it."""
    reached = [answer for answer in answers if answer.error is None]
    parts = []
    if len(reached) == 1:
        parts.append(_one_host(reached[0], palette))
    elif reached:
        parts.append(_matrix(reached, palette))
        parts.extend(_lacks(reached, palette))
    parts.extend(
        f"{clean(a.host)}: {palette.paint('not reached', 'error')}: {clean(a.error.message)}"
        for a in answers
        if a.error is not None
    )
    lacking = sum(len(_missing(answer)) for answer in reached)
    good = sum(1 for a in reached for f in _features(a) if f.get("status") == "passed")
    parts.append(f"{good} yes, {lacking} no or untested on {plural(len(reached), 'host')}.")
    return "\n\n".join(parts)


def _features(answer: HostAnswer) -> list[Mapping[str, Any]]:
    features = answer.value.get("features")
    if not isinstance(features, list):
        return []
    return [feature for feature in features if isinstance(feature, Mapping)]


def _missing(answer: HostAnswer) -> list[Mapping[str, Any]]:
    return [feature for feature in _features(answer) if feature.get("status") != "passed"]


def _verdict(feature: Mapping[str, Any]) -> Cell:
    word, style = _WORDS.get(str(feature.get("status")), ("?", "warn"))
    return Cell(word, style)


def _one_host(answer: HostAnswer, palette: Palette) -> str:
    lines = [f"{palette.paint(clean(answer.host), 'strong')}  {_identity(answer.value)}"]
    features = _features(answer)
    width = max((len(clean(f.get("id", ""))) for f in features), default=0)
    for feature in features:
        word = _verdict(feature)
        name = clean(feature.get("id", "")).ljust(width)
        why = clean(feature.get("reason") or _evidence(feature))
        verdict = palette.paint(word.text.ljust(8), word.style)
        lines.append(f"  {name}  {verdict}  {why}".rstrip())
        if feature.get("status") != "passed" and feature.get("remedy"):
            lines.append(f"  {' ' * width}  {'':8}  {_remedy(feature, palette)}")
    return "\n".join(lines)


def _matrix(answers: Sequence[HostAnswer], palette: Palette) -> str:
    """Abilities down and hosts across; with many hosts, hosts down and the drivers across."""
    names = list(dict.fromkeys(clean(f.get("id", "")) for a in answers for f in _features(a)))
    found = {
        (answer.host, clean(feature.get("id", ""))): _verdict(feature)
        for answer in answers
        for feature in _features(answer)
    }
    absent = Cell("-", "dim")
    if len(answers) <= _MAX_COLUMNS:
        hosts = [answer.host for answer in answers]
        by_ability: list[Sequence[str | Cell]] = [
            [name, *(found.get((host, name), absent) for host in hosts)] for name in names
        ]
        return table(("ABILITY", *hosts), by_ability, palette)
    drivers = [name for name in names if name.startswith("driver.")]
    by_host: list[Sequence[str | Cell]] = [
        [answer.host, *(found.get((answer.host, name), absent) for name in drivers)]
        for answer in answers
    ]
    return table(("HOST", *(name.partition(".")[2].upper() for name in drivers)), by_host, palette)


def _lacks(answers: Sequence[HostAnswer], palette: Palette) -> list[str]:
    """What each host lacks; hosts that lack the same are told together."""
    told: dict[str, list[str]] = {}
    for answer in answers:
        lines = []
        for feature in _missing(answer):
            verdict, why = _verdict(feature).text, clean(feature.get("reason"))
            lines.append(f"  {clean(feature.get('id', ''))}: {verdict}: {why}")
            if feature.get("remedy"):
                lines.append(f"    {_remedy(feature, palette)}")
        if lines:
            told.setdefault("\n".join(lines), []).append(clean(answer.host))
    return [f"{palette.paint(', '.join(hosts), 'strong')}\n{body}" for body, hosts in told.items()]


def _remedy(feature: Mapping[str, Any], palette: Palette) -> str:
    return f"{palette.paint('remedy:', 'hint')} {clean(feature['remedy'])}"


def _evidence(feature: Mapping[str, Any]) -> str:
    evidence = feature.get("evidence")
    if not isinstance(evidence, Mapping):
        return str(evidence or "")
    shown = {n: v for n, v in evidence.items() if n not in _DULL and v is not False}
    return ", ".join(_fact(str(name), value) for name, value in list(shown.items())[:6])


def _fact(name: str, value: Any) -> str:
    if value is True:
        return name.replace("_", " ")
    if isinstance(value, list):
        return f"{name} {' '.join(str(item) for item in value)}"
    if name in _BYTES and isinstance(value, int):
        return f"{name} {size(value)}"
    return f"{name} {value}"


def _identity(profile: Mapping[str, Any]) -> str:
    identity = profile.get("identity")
    if not isinstance(identity, Mapping):
        return ""
    cpu = identity.get("cpu")
    model = cpu.get("model", "") if isinstance(cpu, Mapping) else ""
    words = (identity.get("kernel"), identity.get("architecture"), model)
    return ", ".join(clean(word) for word in words if word)


def status_text(
    answers: Sequence[HostAnswer], palette: Palette = PLAIN, *, show_all: bool = False
) -> str:
    """Unit, host, engine, model, generation, state, since, memory; without what is over."""
    rows: list[Sequence[str | Cell]] = []
    for answer in answers:
        units = [u for u in units_of(answer) if show_all or _matters(u, units_of(answer))]
        rows.extend(_unit_row(answer.host, unit) for unit in units)
    parts = []
    if rows:
        head = (
            "UNIT",
            "HOST",
            "ENGINE",
            "MODEL",
            "GEN",
            "STATE",
            "SINCE",
            "MEMORY",
            "PORTS",
            "FROM",
        )
        parts.append(table(head, rows, palette, right=(4, 7)))
    elif not any(answer.error for answer in answers):
        parts.append(f"No units on {plural(len(answers), 'host')}.")
    parts.extend(
        f"{clean(a.host)}: {palette.paint('not reached', 'error')}: {clean(a.error.message)}"
        for a in answers
        if a.error is not None
    )
    return "\n\n".join(parts)


def units_of(answer: HostAnswer) -> list[Mapping[str, Any]]:
    units = answer.value.get("units")
    return [u for u in units if isinstance(u, Mapping)] if isinstance(units, list) else []


def only_units(answer: HostAnswer, ids: Sequence[str]) -> HostAnswer:
    """The answer without the units that are not named."""
    kept = [unit for unit in units_of(answer) if unit.get("unit") in ids]
    return HostAnswer(answer.host, {**answer.value, "units": kept}, answer.error)


def _matters(unit: Mapping[str, Any], units: Sequence[Mapping[str, Any]]) -> bool:
    """Stopped ones do not; a dead one only while no later generation has taken its place."""
    if unit.get("state") != "dead":
        return unit.get("state") != "stopped"
    later = [u for u in units if u.get("unit") == unit.get("unit") and _number(u) > _number(unit)]
    return not later


def _number(unit: Mapping[str, Any]) -> int:
    number = unit.get("generation")
    return number if isinstance(number, int) else 0


def _unit_row(host: str, unit: Mapping[str, Any]) -> Sequence[str | Cell]:
    state = str(unit.get("state", ""))
    since = unit.get("since")
    memory = unit.get("rss_bytes")
    artifact = unit.get("artifact")
    return (
        str(unit.get("unit", "")),
        host,
        str(unit.get("engine", "")),
        _model(unit.get("model")),
        str(unit.get("generation", "")),
        Cell(state, _STATE_STYLES.get(state, "")),
        ago(float(since)) if isinstance(since, (int, float)) and since > 0 else "-",
        size(memory) if isinstance(memory, (int, float)) else "-",
        _ports(unit),
        short_digest(str(artifact)) if artifact else "cold start",
    )


def _model(model: Any) -> str:
    return str(model.get("id", "") if isinstance(model, Mapping) else model or "")


def _ports(unit: Mapping[str, Any]) -> str:
    ports = unit.get("ports")
    if not unit.get("exposed") or not isinstance(ports, list):
        return "-"
    found = [p for p in ports if isinstance(p, Mapping)]
    return ", ".join(f"{p.get('host', '')}:{p.get('port', '')}" for p in found) or "-"
