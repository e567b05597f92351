"""Image folders whose generations have ended: let go of, and who holds what is left.

A generation that is stopped lets go of its folder itself. One that crashed cannot: its folder, the
store's pin and the immutable attribute of its page files stay until somebody comes by.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import read_regular
from coldsnap_runtime import image_folders, lease
from coldsnap_runtime.generation_notes import START, read_note
from coldsnap_runtime.unit_record import UnitStore

if TYPE_CHECKING:
    from coldsnap_runtime.context import Context

_MAX_NOTE = 1 << 16


def left_by_ended(context: Context) -> list[str]:
    """Units that have folders of no living generation. A verb at work may be using them still."""
    return [unit for unit in _units(context) if _left(context, unit)]


def sweep_ended(context: Context) -> list[str]:
    """Drop these folders, of each unit that no verb is at work on; the units' names."""
    swept = []
    for unit in left_by_ended(context):
        with lease.exclusive(context.state_dir, unit) as is_mine:
            if is_mine and _left(context, unit):
                image_folders.sweep(context, unit, _kept(context, unit) or set())
                swept.append(unit)
    return swept


def holders(context: Context, manifest: str) -> list[str]:
    """What holds on to an artifact, in words: ``generation 3 of unit u0 (serving)``."""
    return [
        _holder(context, unit, note.stem)
        for unit in _units(context)
        for note in sorted(_folder(context, unit).glob("*.json"))
        if _manifest(note) == manifest
    ]


def _holder(context: Context, unit: str, token: str) -> str:
    store = UnitStore(context.state_dir)
    try:
        for record in store.generations(unit):
            start = read_note(store.paths(unit, record.generation), START)
            if start.get("image") == token:
                return f"generation {record.generation} of unit {unit} ({record.state})"
    except ColdSnapError:
        pass  # a damaged record
    return f"unit {unit}"


def _left(context: Context, unit: str) -> set[str]:
    """Tokens of folders that may go; none where that cannot be known."""
    kept = _kept(context, unit)
    return set() if kept is None else image_folders.tokens(context, unit) - kept


def _kept(context: Context, unit: str) -> set[str] | None:
    """Tokens of living generations; None if one of them does not tell what it lives on."""
    store = UnitStore(context.state_dir)
    kept: set[str] = set()
    try:
        for record in store.generations(unit):
            if not record.is_live:
                continue
            note = read_note(store.paths(unit, record.generation), START)
            if not note:
                return None
            kept.add(str(note.get("image", "")))
    except ColdSnapError:
        return None  # a damaged record, or a folder that is no unit's
    return kept


def _manifest(note: Path) -> str:
    try:
        value: Any = json.loads(read_regular(note, _MAX_NOTE))
    except (ColdSnapError, OSError, ValueError):
        return ""
    return str(value.get("manifest", "")) if isinstance(value, dict) else ""


def _folder(context: Context, unit: str) -> Path:
    return Path(context.path("images", unit))


def _units(context: Context) -> list[str]:
    try:
        return sorted(entry.name for entry in Path(context.path("images")).iterdir())
    except OSError:
        return []
