"""Snapshot driver `n580`: what is captured is a process that has not started its engine yet.

A launch that says ``template`` starts `coldsnap_inside_template`, which parks before the engine's
start. Parked it is looked at (no device file open or mapped), dumped into the generation's
``template/`` and then released: the same process becomes the engine that serves and that a
capture takes payload, caches and start-up plan from (`template_capture`). A restore brings the
parked process back, and hydration releases it with the placement of its new host.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import write_atomic
from coldsnap_runtime.engine_door import Watch, door_of
from coldsnap_runtime.host_pids import host_pids
from coldsnap_runtime.template_files import (
    DRIVER,
    FOLDER,
    PARKED,
    read_told,
    template_folder,
)
from coldsnap_runtime.template_release import release
from coldsnap_runtime.unit_dump import dump_parked
from coldsnap_runtime.unit_init import INSIDE_CONTROL
from coldsnap_runtime.unit_processes import mentions, open_paths, proc_of, processes
from coldsnap_runtime.unit_record import UnitStore

if TYPE_CHECKING:
    from coldsnap_runtime.context import Context
    from coldsnap_runtime.installation import Installation
    from coldsnap_runtime.timing import Timing
    from coldsnap_runtime.unit_record import GenerationPaths, UnitRecord

_INSIDE = f"{INSIDE_CONTROL}/{FOLDER}"
_DEVICES = "/dev/nvidia"
_PARK_SECONDS = 900.0


def park(record: UnitRecord, context: Context, installation: Installation, timing: Timing) -> None:
    """Wait for the template of a launch, dump it, let it become the engine.

    Raises:
        ColdSnapError: ``engine.died``, ``template.not-parked``, ``template.not-context-free``,
            and those of a dump.
    """
    store = UnitStore(context.state_dir)
    paths = store.paths(record.unit, record.generation)
    context.phase(f"unit {record.unit}: waiting for the template")
    with timing.span("template") as span:
        parked = _wait_parked(store, record, paths, context)
        span.note(mode=str(parked.get("mode")), modules=int(parked.get("modules") or 0))
    libraries = require_context_free(record)
    with timing.span("template-dump"), context.uninterrupted():
        folder = template_folder(paths)
        capture = dump_parked(record, paths, folder, installation, timing)
        told = {key: parked.get(key) for key in ("mode", "reason", "modules", "threads", "failed")}
        capture = replace(
            capture, template={"snapshot_driver": DRIVER, **told, "driver_libraries": libraries}
        )
        write_atomic(folder / "capture.json", json.dumps(capture.to_json()).encode())
    release(paths, {"COLDSNAP_EXPORT": _INSIDE})


def require_context_free(record: UnitRecord) -> list[str]:
    """The driver's libraries that the parked processes have mapped; none holds a device.

    Raises:
        ColdSnapError: ``template.not-context-free``.
    """
    assert record.init is not None  # noqa: S101  (it was just started)
    init = record.init.pid
    tree = [process.pid for process in processes(init, record.root_pid)]
    numbers = host_pids(init, tree)
    libraries = set()
    for inside in tree:
        maps = proc_of(init) / str(inside) / "maps"
        opened = [path for path in open_paths(numbers.get(inside, 0)) if path.startswith(_DEVICES)]
        if opened or mentions(maps, _DEVICES):
            raise ColdSnapError(
                "template.not-context-free",
                f"process {inside} of the parked template holds {(opened or [_DEVICES])[0]}",
                f"unit {record.unit}",
                cause="something that it loaded opened the GPU before the engine was started",
                remedy="set COLDSNAP_TEMPLATE: exec in the unit's env:, so that nothing is loaded",
            )
        names = ("libcuda.so", "libnvidia-ml.so")
        libraries |= {name for name in names if mentions(maps, name)}
    return sorted(libraries)


def _wait_parked(
    store: UnitStore, record: UnitRecord, paths: GenerationPaths, context: Context
) -> dict[str, Any]:
    assert record.init is not None  # noqa: S101  (it was just started)
    deadline = time.monotonic() + _PARK_SECONDS
    with Watch(record.init) as watch:
        while not (parked := read_told(paths, PARKED)):
            context.check_cancelled()
            if watch.has_ended(0.02):
                raise door_of(store, record).died()
            if time.monotonic() > deadline:
                raise ColdSnapError(
                    "template.not-parked",
                    f"the template is not parked after {_PARK_SECONDS:.0f} s",
                    f"unit {record.unit}",
                    remedy="see the engine's log; set COLDSNAP_TEMPLATE: exec in the unit's env: "
                    "if its imports hang",
                )
    return parked
