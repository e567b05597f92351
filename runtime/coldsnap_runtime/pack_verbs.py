"""The verb ``pack.gc``: which old runtime packs may go."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from coldsnap.artifact.decode import Record, decode
from coldsnap.artifact.rules import Count, Line, Natural
from coldsnap_runtime.generation_notes import START, read_note
from coldsnap_runtime.image_sweep import sweep_ended
from coldsnap_runtime.unit_record import UnitStore

if TYPE_CHECKING:
    from coldsnap_runtime.context import Context

_CUT_OFF = 86400.0
_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class CollectRequest(Record):
    keep: Annotated[tuple[Line, ...], Count(0, 1024)] = ()
    """Digests, with or without ``sha256:``."""
    newest: Natural = 0
    """How many of the last staged ones to keep besides."""


def collect(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """Remove packs that nobody names, runs from, or has a live unit of.

    Images of generations that have ended go as well: ``{removed, kept, ended: [units]}``.
    """
    request = decode(CollectRequest, value, what="pack.gc", code="request.invalid")
    ended = sweep_ended(context)
    folder = Path(context.path("runtime", "sha256"))
    found = {p.name for p in folder.glob("*") if p.is_dir() and _HEX.fullmatch(p.name)}
    used = _used_by_units(context)
    # A live unit of which nobody wrote down the pack may have any of them mounted.
    kept = set(found) if used is None else used | {os.path.basename(context.pack)}
    kept |= {name.removeprefix("sha256:") for name in request.keep}
    by_age = sorted(found, key=lambda name: (folder / name).stat().st_mtime, reverse=True)
    kept |= set(by_age[: request.newest])
    removed = sorted(found - kept)
    for name in removed:
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.rmtree(_byte_code(context, folder / name), ignore_errors=True)
        (folder.parent / "verified" / f"{name}.json").unlink(missing_ok=True)
    incoming = Path(context.path("runtime", "incoming"))
    _remove_leftovers(incoming)
    shutil.rmtree(_byte_code(context, incoming), ignore_errors=True)
    return {"removed": removed, "kept": sorted(found & kept), "ended": ended}


def _byte_code(context: Context, folder: Path) -> Path:
    """Where pack_main.py keeps the byte code of the modules in `folder`."""
    return Path(context.path("pycache"), *folder.absolute().parts[1:])


def _remove_leftovers(folder: Path) -> None:
    """Uploads and unpackings that were cut off a day ago or earlier."""
    for left in folder.glob("*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime < _CUT_OFF:
                continue
            shutil.rmtree(left) if left.is_dir() else left.unlink()


def _used_by_units(context: Context) -> set[str] | None:
    """Names of the packs of live units; None if one of them cannot be known."""
    store = UnitStore(context.state_dir)
    used: set[str] = set()
    for unit in store.units():
        for record in store.generations(unit):
            if not record.is_live:
                continue
            pack = read_note(store.paths(unit, record.generation), START).get("pack")
            if not isinstance(pack, str):
                return None
            used.add(os.path.basename(pack))
    return used
