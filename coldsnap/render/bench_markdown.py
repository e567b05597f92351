"""A bench as a section of a document: what was measured where, the command, the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coldsnap.render.bench import host_words, package_words, rows_of
from coldsnap.render.palette import clean
from coldsnap.render.quantities import times

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldsnap.render.bench import BenchRow, Compared

_HEAD = "| | median | least | most | n | |\n|---|---|---|---|---|---|"


def bench_markdown(
    units: Sequence[Compared], versions: Mapping[str, Any], title: str, day: str
) -> str:
    """`title` heads the section, `day` is when it was measured (2026-11-30)."""
    parts = [f"### {_cell(title)} ({day})", _measured_with(units, versions)]
    if versions.get("command"):
        parts.append(f"Command: `{clean(versions['command'], 500)}`.")
    parts += [_table(item) for item in units]
    return "\n\n".join(parts) + "\n"


def _measured_with(units: Sequence[Compared], versions: Mapping[str, Any]) -> str:
    hosts = [", ".join(host_words(facts)) for facts in dict(versions.get("hosts") or {}).values()]
    software = dict(versions.get("software") or {})
    engine = str(versions.get("engine") or "")
    words = (word for found in software.values() for word in package_words(found, engine))
    packages = list(dict.fromkeys(words))
    used = [*packages, *(f"{n} {versions[k]}" for n, k in _TOOLS if versions.get(k))]
    loads = [one.load for item in units for one in (*item.cold, *item.restored)]
    lines = [*dict.fromkeys(hosts), ", ".join(used)]
    if loads:
        lines.append(f"load average {min(loads):.1f} to {max(loads):.1f} on the machine that asked")
    return "; ".join(_cell(line) for line in lines if line) + "."


_TOOLS = (("CRIU", "criu"), ("ColdSnap", "coldsnap"))


def _table(item: Compared) -> str:
    same = "same answer in every restore" if item.is_same else "ANSWERS DIFFER"
    ratio = f"{times(item.ratio)} by the medians"
    head = f"{_cell(item.unit)}, page cache {item.page_cache}: {ratio}; {same}."
    return "\n".join([head, "", _HEAD, *(_row(row) for row in rows_of(item))])


def _row(row: BenchRow) -> str:
    name = _cell(row.name)
    shown = f"**{name}**" if not row.depth else "&nbsp;&nbsp;" * row.depth + name
    return "| " + " | ".join([shown, *(_cell(cell) for cell in row.cells())]) + " |"


def _cell(text: object) -> str:
    return clean(text).replace("|", "\\|")
