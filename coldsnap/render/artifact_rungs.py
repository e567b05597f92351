"""How fast a process image may come back: which rungs an artifact has, and what proved them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coldsnap.render.columns import Cell, table
from coldsnap.render.palette import PLAIN, Palette, clean
from coldsnap.render.quantities import size
from coldsnap.render.report.values import number, text


def rungs_text(notes: Mapping[str, Any], palette: Palette = PLAIN) -> str:
    """From the descriptor's note ``process-image``; empty for an artifact without it."""
    note = notes.get("process-image")
    rungs = note.get("rungs") if isinstance(note, Mapping) else None
    if not isinstance(rungs, Mapping) or not rungs:
        return ""
    rows = [_row(str(name), one) for name, one in rungs.items() if isinstance(one, Mapping)]
    head = palette.paint("process image, ways to be restored", "strong")
    return f"{head}\n{table((), rows, palette, indent='  ')}"


def _row(name: str, verdict: Mapping[str, Any]) -> tuple[str | Cell, ...]:
    reason = clean(text(verdict.get("reason")), 200)
    moved = number(verdict.get("bytes"))
    volume = f"{size(moved)} of pages" if moved else ""
    if not verdict.get("proven"):
        return (clean(name, 16), volume, Cell("not proven", "warn"), reason)
    pages = int(number(verdict.get("pages")) or 0)
    by = "every page and the answer" if verdict.get("level") == "answer" else "every page"
    told = f"{by}, {pages:,} equal" + (f"; not asked: {reason}" if reason else "")
    return (clean(name, 16), volume, Cell("proven", "good"), told)
