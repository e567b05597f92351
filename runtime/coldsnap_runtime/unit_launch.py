"""Start a unit cold: namespaces, PID 1, the image's root, the engine below it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from coldsnap_runtime.guard_place import put_guard
from coldsnap_runtime.ownership import give_back_unit
from coldsnap_runtime.preload_place import put_preloads
from coldsnap_runtime.unit_generation import discard_generation, make_generation, port_records
from coldsnap_runtime.unit_init import ROOT_PID, root_argv
from coldsnap_runtime.unit_record import GenerationPaths, ProcessRef, UnitRecord, UnitStore
from coldsnap_runtime.unit_start import Started, StartPlan, make_caches, start_unit

if TYPE_CHECKING:
    from coldsnap_runtime.context import Context
    from coldsnap_runtime.installation import Installation
    from coldsnap_runtime.timing import Timing
    from coldsnap_runtime.unit_requests import LaunchRequest


def launch(
    request: LaunchRequest, context: Context, installation: Installation, timing: Timing
) -> UnitRecord:
    """Start the engine as a new generation; it is ``starting`` until somebody found it ready.

    Raises:
        ColdSnapError: ``unit.start-failed``, ``container.*``, ``file.disk-full``. Nothing of the
            generation is left then.
    """
    spec = request.launch
    store = UnitStore(context.state_dir)
    with timing.span("generation"):
        number, paths = make_generation(store, request.unit, installation)
    record = UnitRecord(
        unit=request.unit,
        generation=number,
        state="starting",
        engine=request.engine,
        model=request.model,
        launch_sha256=request.launch_sha256,
        request_sha256=request.request_sha256,
        run=request.run,
        since=time.time(),
        init=ProcessRef.of(os.getpid()),
        root_pid=ROOT_PID,
        ports=port_records(spec.ports),
        network=spec.network,
        runtime=spec.runtime,
        launch=spec.raw,
    )
    started: Started | None = None
    try:
        store.save(record)
        with timing.span("namespaces"), context.uninterrupted():
            started = _start(request, number, paths, installation)
        return store.update(record, init=started.init, container=started.container)
    except BaseException:
        if started is None:
            discard_generation(paths, None)
        else:
            discard_generation(paths, started.init, started.container)
        raise
    finally:
        give_back_unit(store.unit_dir(record.unit), context.state_dir)


def _start(
    request: LaunchRequest, number: int, paths: GenerationPaths, installation: Installation
) -> Started:
    spec = request.launch
    deny_io_uring = spec.io_uring == "deny"
    plan = StartPlan(
        unit=request.unit,
        generation=number,
        spec=spec,
        last_pid=ROOT_PID - 1,
        argv=root_argv(spec.argv, cwd=spec.cwd, deny_io_uring=deny_io_uring),
        further_mounts=(
            *make_caches(spec),
            *put_guard(spec, installation.guard, paths.folder),
            *put_preloads(spec.preload, installation.guard.parent, paths.folder),
        ),
    )
    return start_unit(plan, paths, installation)
