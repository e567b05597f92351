"""``coldsnap payload bench --against``: hydration beside other loaders, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coldsnap.cli.commands.payload_app import needed_library

if TYPE_CHECKING:
    from coldsnap.cli.session import Session
    from coldsnap_runtime.hydrate.bench_rounds import AgainstOptions


def run_peers(session: Session, options: AgainstOptions) -> None:
    """Measure and answer.

    Raises:
        ColdSnapError: ``bench.*``, ``hydrate.*``, ``file.*``.
    """
    from coldsnap_runtime.hydrate.bench_against import run_against

    found = run_against(needed_library(), options, session.story)
    session.answer(lambda: _table(session, found), found)


def _table(session: Session, found: dict[str, Any]) -> str:
    from coldsnap.render.columns import table
    from coldsnap.render.quantities import plural, size
    from coldsnap_runtime.hydrate.bench_against import is_cold

    ceilings = {kind: _ceiling(found, kind) for kind in ("warm", "cold")}
    rows = []
    for row in found["rows"]:
        cells = [row["name"]]
        for kind in ("warm", "cold"):
            cells += _cells(row, kind, ceilings[kind])
        cells.append(row["reason"] or row["version"] or "")
        rows.append(tuple(cells))
    head = ("LOADER", "WARM", "BEST", "OF CEILING", "COLD", "BEST", "OF CEILING", "")
    shown = table(head, rows, session.palette, right=(1, 2, 3, 4, 5, 6))
    machine = found["machine"]
    load = ", ".join(str(value) for value in machine["load"])
    tail = (
        f"{size(found['size'])} in {plural(found['tensors'], 'tensor')}, "
        f"{plural(found['rounds'], 'round')}, {machine['device']}, {machine['cores']} cores, "
        f"load {load}\nwarm: in the page cache, ceiling {ceilings['warm'][0] or 'unknown'}; "
        f"cold: not in it, ceiling {ceilings['cold'][0] or 'unknown'}"
    )
    if not is_cold(found):
        tail += f"\nup to {100 * found['cold_cached']:.0f} % of the file could not be dropped"
    return f"{shown}\n\n{tail}"


def _ceiling(found: dict[str, Any], kind: str) -> tuple[str, float | None]:
    """The last ceiling that was measured that way: a pinned copy, where there is a device."""
    known = [row for row in found["rows"] if row["ceiling"] and row[kind]["rate"]]
    return (known[-1]["name"], known[-1][kind]["rate"]) if known else ("", None)


def _cells(row: dict[str, Any], kind: str, ceiling: tuple[str, float | None]) -> list[str]:
    """Median, best and ratio."""
    from coldsnap.render.quantities import rate

    measured = row[kind]
    if not measured["rate"]:
        return ["", "", ""]
    name, most = ceiling
    ratio = f"{100 * measured['rate'] / most:.0f} %" if most and row["name"] != name else ""
    return [rate(measured["rate"]), rate(measured["best"]), ratio]
