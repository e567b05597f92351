"""What ``coldsnap bench process-restore`` found, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coldsnap.render.columns import table
from coldsnap.render.quantities import plural, size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldsnap.render.palette import Palette

_NAMES = {
    "plain": "plain CRIU",
    "thp": "plain, huge pages always",
    "ext": "ext",
    "ext-small": "ext, small pages only",
    "mmap": "mmap",
}
_HEAD = ("KIND", "RESTORED", "[LEAST-MOST]", "ANSWERED", "[LEAST-MOST]", "FASTER", "FILL", "n")


def process_text(found: Mapping[str, Any], palette: Palette) -> str:
    plain = next((s for s in found["series"] if s["kind"] == "plain"), None)
    base = plain["answered"]["median"] if plain else None
    rows = [_row(series, base) for series in found["series"]]
    machine = found["machine"]
    load = ", ".join(str(value) for value in machine["load"])
    lines = [
        table(_HEAD, rows, palette, right=(1, 3, 5, 6, 7)),
        "",
        f"{size(found['bytes'])} of pages, {machine['cores']} cores, kernel {machine['kernel']}",
        f"load {load}",
    ]
    lines += [f"{kind} was left out: {reason}" for kind, reason in found["missing"].items()]
    lines += [f"{rung}: {_verdict(found['verdicts'][rung])}" for rung in found["verdicts"]]
    if loop := found.get("loop"):
        lines.append(_loop(loop))
    if replicas := found.get("replicas"):
        lines.append(_replicas(replicas))
    return "\n".join(lines)


def _row(series: Mapping[str, Any], base: float | None) -> tuple[str, ...]:
    restored, answered, fill = (
        series["restored"],
        series["answered"],
        series["fill_gib_per_second"],
    )
    return (
        _NAMES[series["kind"]],
        f"{restored['median']:.2f} s",
        f"[{restored['min']:.2f}-{restored['max']:.2f}]",
        f"{answered['median']:.2f} s",
        f"[{answered['min']:.2f}-{answered['max']:.2f}]",
        f"{base / answered['median']:.1f}x" if base else "",
        f"{fill['median']:.1f} GiB/s" if fill else "",
        str(series["n"]),
    )


def _verdict(verdict: Mapping[str, Any]) -> str:
    if verdict.get("proven"):
        moved, kept = size(verdict["bytes"]), size(verdict["bytes_kept"])
        pages = f"{verdict['pages']:,} pages equal"
        return f"proven at the capture, {pages}; {moved} moved, {kept} stay with CRIU"
    return f"not proven: {verdict.get('reason')}"


def _loop(loop: Mapping[str, Any]) -> str:
    leaks = ", ".join(f"{name} {count:+d}" for name, count in loop["leaks"].items())
    return (
        f"{plural(loop['restores'], 'restore')} in a loop, {loop['pages_compared']:,} pages "
        f"compared, {plural(loop['differences'], 'difference')}; left behind: {leaks}"
    )


def _replicas(found: Mapping[str, Any]) -> str:
    return (
        f"two replicas from one image at once: {found['good']} of {found['tries']} answered alike; "
        f"together {size(found['pss_bytes'])} (PSS) after the answer, "
        f"{size(found['private_bytes'])} of it private; first answers after "
        f"{found['answered']['median']:.2f} s"
    )
