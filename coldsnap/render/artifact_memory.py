"""What a process image is made of, so that the next thing to leave out is seen; and searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from coldsnap.render.columns import Cell, table
from coldsnap.render.palette import PLAIN, Palette, clean
from coldsnap.render.quantities import duration, plural, rate, size
from coldsnap.render.report.values import maps, number, text

if TYPE_CHECKING:
    from coldsnap.artifact.oci.payload_found import PayloadFound

_BAR: Final = 24
_LARGEST: Final = 12
"""Areas that are named."""
_HITS: Final = 12


@dataclass(frozen=True)
class Area:
    """Pages of one memory area in the image."""

    pid: int
    process: str
    kind: str
    name: str
    """What is mapped there; empty for memory of its own."""
    start: int
    bytes: int


def areas_of(notes: Mapping[str, Any]) -> tuple[Area, ...]:
    """From the descriptor's note ``process-image``; what does not fit is left out."""
    note = notes.get("process-image")
    found = []
    for row in maps(note.get("sizes")) if isinstance(note, Mapping) else ():
        count, pid, start = (number(row.get(key)) for key in ("bytes", "pid", "start"))
        if count is not None and pid is not None and count > 0:
            found.append(
                Area(
                    int(pid),
                    text(row.get("process")),
                    text(row.get("kind")) or "other",
                    text(row.get("name")),
                    int(start or 0),
                    int(count),
                )
            )
    return tuple(sorted(found, key=lambda area: -area.bytes))


def memory_text(areas: Sequence[Area], palette: Palette = PLAIN) -> str:
    """By process and kind, the largest first, then the largest areas by name."""
    if not areas:
        return ""
    total = sum(area.bytes for area in areas)
    parts = [
        f"{palette.paint('process image by process and kind', 'strong')}  {size(total)}",
        _by_process(areas, total, palette),
        palette.paint("largest areas", "strong"),
        _largest(areas, total, palette),
    ]
    return "\n".join(parts)


def _by_process(areas: Sequence[Area], total: int, palette: Palette) -> str:
    groups: dict[tuple[int, str], dict[str, int]] = {}
    for area in areas:
        kinds = groups.setdefault((area.pid, area.process), {})
        kinds[area.kind] = kinds.get(area.kind, 0) + area.bytes
    rows: list[list[str | Cell]] = []
    for (pid, process), kinds in sorted(groups.items(), key=lambda item: -sum(item[1].values())):
        whole = sum(kinds.values())
        name = Cell(f"{pid} {process}", "strong")
        rows.append([name, size(whole), _share(whole, total), _bar(whole, total)])
        for kind, count in sorted(kinds.items(), key=lambda item: -item[1]):
            rows.append([f"  {kind}", size(count), _share(count, total), _bar(count, total)])
    return table((), rows, palette, right=(1, 2), indent="  ")


def _largest(areas: Sequence[Area], total: int, palette: Palette) -> str:
    rows = [
        (
            size(area.bytes),
            _share(area.bytes, total),
            f"{area.pid} {area.process}",
            area.kind,
            f"0x{area.start:x}",
            area.name,
        )
        for area in areas[:_LARGEST]
    ]
    rest = areas[_LARGEST:]
    if rest:
        count = sum(area.bytes for area in rest)
        rows.append((size(count), _share(count, total), plural(len(rest), "more area"), "", "", ""))
    return table((), rows, palette, right=(0, 1), indent="  ")


def _share(part: int, total: int) -> str:
    return f"{part / total * 100:.0f} %" if part * 200 >= total else "< 1 %"


def _bar(part: int, total: int) -> str:
    return "█" * max(1, round(part / total * _BAR))


def search_text(found: PayloadFound, palette: Palette = PLAIN) -> str:
    """What was looked for and where; then that nothing was found, or each place."""
    done = found.searched
    speed = f" ({rate(done.bytes / done.seconds)})" if done.seconds > 0 else ""
    looked = (
        f"searched {size(done.bytes)} of {plural(done.files, 'file')} for "
        f"{plural(found.samples, 'sample')} of {plural(found.extents, 'extent')} "
        f"({size(found.payload_bytes)}) in {duration(done.seconds)}{speed}"
    )
    lines = [looked]
    if found.constant:
        count = len(found.constant)
        shown = ", ".join(clean(one, 60) for one in found.constant[:3])
        lines.append(
            f"  {plural(count, 'extent')} with nothing to look for (bytes alike, or under 15): "
            f"{shown}{', ...' if count > 3 else ''}"  # noqa: PLR2004
        )
    if not done.hits:
        return "\n".join([*lines, palette.paint("no model byte was found", "good")])
    extents = len({hit.extent for hit in done.hits})
    lines.append(
        palette.paint(
            f"model bytes found: {plural(len(done.hits), 'place')}, {plural(extents, 'extent')}",
            "error",
        )
    )
    rows = [
        (hit.file, f"at {hit.position}", f"{clean(hit.extent, 100)} + {hit.offset}")
        for hit in done.hits[:_HITS]
    ]
    lines.append(table((), rows, palette, indent="  "))
    if len(done.hits) > _HITS:
        lines.append(f"  and {len(done.hits) - _HITS} more")
    return "\n".join(lines)
