"""A capture of an engine that was started from a template: nothing is dumped, it serves on.

The parked template was dumped before the engine started. Now come the compiler caches as they
are, the payload pack that the engine wrote when it had its weights, and the start-up plan.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.capture_seal import remove
from coldsnap_runtime.gpus import read_gpus
from coldsnap_runtime.template_files import (
    DRIVER,
    FOLDER,
    STARTUP_PLAN,
    read_told,
    template_folder,
)
from coldsnap_runtime.unit_capture import CAPTURE_FILE, Capture, FileSetRecord
from coldsnap_runtime.unit_cuda import engine_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from coldsnap_runtime.unit_record import GenerationPaths, UnitRecord
    from coldsnap_runtime.unit_requests import CheckpointRequest

_PAYLOAD = ("payload.pack", "payload.index.json")


def take(
    record: UnitRecord,
    paths: GenerationPaths,
    request: CheckpointRequest,
    partial: Path,
    save_cache: Callable[[str, str], FileSetRecord],
) -> Capture:
    """Fill `partial` with all that a restore needs; hashed and sealed by the caller.

    Args:
        record: of the generation.
        paths: of the generation.
        request: names the capture.
        partial: made here, anew.
        save_cache: copies a cache folder (name, place inside) into `partial`.

    Raises:
        ColdSnapError: ``checkpoint.not-quiesced``, ``checkpoint.no-template``.
    """
    if record.state != "quiesced":
        raise ColdSnapError(
            "checkpoint.not-quiesced",
            f"generation {record.generation} is {record.state}, not quiesced",
            remedy="quiesce it first (core.quiesce)",
        )
    template = template_folder(paths)
    if not (template / CAPTURE_FILE).is_file():
        raise ColdSnapError(
            "checkpoint.no-template",
            f"generation {record.generation} was not launched here, it was restored",
            f"unit {record.unit}",
            cause="the template is dumped once, before the engine of a launch starts",
            remedy="its artifact is in the store already; launch the unit to capture another",
        )
    parked = Capture.read(template)
    remove(partial)
    _link_tree(template, partial)
    (partial / CAPTURE_FILE).unlink()
    caches = record.launch.get("caches") or ()
    sets = [save_cache(f"cache-{number}", path) for number, path in enumerate(caches)]
    _link_payload(paths, partial)
    told = dict(parked.template or {})
    return replace(
        parked,
        capture_id=request.capture_id,
        request_sha256=request.request_sha256 or record.request_sha256,
        file_sets=(*parked.file_sets, *sets),
        template={
            **told,
            "plan": read_told(paths, STARTUP_PLAN) or None,
            "cuda": _cuda(record, paths),
        },
    )


def _link_tree(source: Path, target: Path) -> None:
    target.mkdir(parents=True, mode=0o700)
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        if path.is_dir():
            place.mkdir(mode=0o700)
        elif path.is_file():
            os.link(path, place)


def _link_payload(paths: GenerationPaths, partial: Path) -> None:
    folder = paths.control / FOLDER
    if not all((folder / n).is_file() and not (folder / n).is_symlink() for n in _PAYLOAD):
        return
    (partial / "payload").mkdir(mode=0o700)
    for name in _PAYLOAD:
        os.link(folder / name, partial / "payload" / name)


def _cuda(record: UnitRecord, paths: GenerationPaths) -> dict[str, Any] | None:
    """As of a capture with CUDA state, which this has none of: what a restore must find."""
    visible = str(record.launch.get("env", {}).get("CUDA_VISIBLE_DEVICES") or "")
    if not visible:
        return None
    here = read_gpus()
    found = [here.by_index(int(index)) for index in visible.split(",") if index.isdigit()]
    return {
        "snapshot_driver": DRIVER,
        "nvidia_driver": here.driver,
        "gpus": [gpu.identity() for gpu in found if gpu is not None],
        "processes": [],
        "process_bytes": 0,
        "engine_bytes": engine_bytes(paths.control),
    }
