"""The runtime pack's own verbs: is it whole, and which old ones may go."""

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
from coldsnap.artifact.tree import verify_tree
from coldsnap_runtime.generation_notes import START, read_note
from coldsnap_runtime.unit_record import UnitStore

if TYPE_CHECKING:
    from coldsnap_runtime.context import Context

_CUT_OFF = 86400.0
_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class VerifyRequest(Record):
    expect: Line = ""
    """Digest, with or without ``sha256:``."""


@dataclass(frozen=True)
class CollectRequest(Record):
    keep: Annotated[tuple[Line, ...], Count(0, 1024)] = ()
    """Digests, with or without ``sha256:``."""
    newest: Natural = 0
    """How many of the last staged ones to keep besides."""


def verify(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """Hash every file of the pack that runs; ``{digest, files, bytes, facts}``.

    Raises:
        ColdSnapError: ``pack.differs`` naming the files, ``pack.wrong``.
    """
    request = decode(VerifyRequest, value, what="pack.verify", code="request.invalid")
    # No digest covers byte code; ours is kept elsewhere (pack_main).
    for folder in [*Path(context.pack).rglob("__pycache__")]:
        shutil.rmtree(folder, ignore_errors=True)
    return verify_tree(context.pack, request.expect or None).to_json()


def collect(value: dict[str, Any], context: Context) -> dict[str, Any]:
    """Remove packs that nobody names, runs from, or has a live unit of; ``{removed, kept}``."""
    request = decode(CollectRequest, value, what="pack.gc", code="request.invalid")
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
    _remove_leftovers(Path(context.path("runtime", "incoming")))
    return {"removed": removed, "kept": sorted(found & kept)}


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
