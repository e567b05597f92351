"""Start a unit cold: namespaces, PID 1, the image's root, the engine below it."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.context import Context
from coldsnap_runtime.installation import Installation
from coldsnap_runtime.ownership import give_back_below
from coldsnap_runtime.timing import Timing
from coldsnap_runtime.unit_init import (
    INSIDE_PACKAGES,
    ROOT_PID,
    InitSpec,
    UnitMount,
    root_argv,
    standard_mounts,
    start_init,
    stop_init,
)
from coldsnap_runtime.unit_record import (
    GenerationPaths,
    PortRecord,
    ProcessRef,
    UnitRecord,
    UnitStore,
)
from coldsnap_runtime.unit_requests import LaunchRequest, LaunchSpec, Port

_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME")
"""Variables of the caller that the engine gets; everything else comes from the plan."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def launch(
    request: LaunchRequest, context: Context, installation: Installation, timing: Timing
) -> UnitRecord:
    """Start the engine as a new generation; it is ``starting`` until somebody found it ready.

    Raises:
        ColdSnapError: ``unit.start-failed``, ``unit.runtime-unsupported``, ``file.disk-full``.
            Nothing of the generation is left then.
    """
    spec = request.launch
    if spec.runtime != "process":
        raise ColdSnapError(
            "unit.runtime-unsupported",
            f"this host cannot run units as {spec.runtime}",
            where=f"unit {request.unit}",
            remedy="set runtime: process",
        )
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
        launch=spec.raw,
    )
    return start_generation(
        store, record, paths, lambda: _start(spec, paths, installation), context, timing
    )


def start_generation(
    store: UnitStore,
    record: UnitRecord,
    paths: GenerationPaths,
    start: Any,
    context: Context,
    timing: Timing,
) -> UnitRecord:
    """Save the record, `start` (which returns PID 1) and save it again; undo on any failure."""
    init: ProcessRef | None = None
    try:
        store.save(record)
        with timing.span("namespaces"), context.uninterrupted():
            init = start()
        return store.update(record, init=init)
    except BaseException:
        discard_generation(paths, init)
        raise
    finally:
        give_back_below(store.unit_dir(record.unit), context.state_dir)


def make_generation(
    store: UnitStore, unit: str, installation: Installation
) -> tuple[int, GenerationPaths]:
    """A numbered folder with all that the standard mounts need."""
    number, paths = store.create(unit)
    try:
        for folder in (paths.control, paths.tmp, paths.work):
            folder.mkdir()
        paths.tmp.chmod(0o1777)
        shutil.copyfile(installation.unit, paths.unit_program)
        paths.unit_program.chmod(0o755)
        paths.engine_log.touch(0o644)
    except BaseException:
        discard_generation(paths, None)
        raise
    return number, paths


def discard_generation(paths: GenerationPaths, init: ProcessRef | None) -> None:
    """End what runs and remove what was written."""
    if init is not None:
        stop_init(init, 0.0)
    shutil.rmtree(paths.folder, ignore_errors=True)


def port_records(ports: tuple[Port, ...]) -> tuple[PortRecord, ...]:
    return tuple(PortRecord(port.name, port.inner, port.host, port.port) for port in ports)


def unit_mounts(
    spec: LaunchSpec, paths: GenerationPaths, installation: Installation
) -> tuple[UnitMount, ...]:
    """The standard mounts, then those of the plan."""
    standard = standard_mounts(
        paths, criu=installation.criu, inside=installation.inside, shm=spec.shm
    )
    asked = (
        UnitMount("bind-read-only" if m.read_only else "bind", m.source, m.target)
        for m in spec.mounts
    )
    return (*standard, *asked)


def engine_environment(spec: LaunchSpec) -> dict[str, str]:
    """What the engine gets; `inside` packages are found through PYTHONPATH."""
    env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    env.setdefault("PATH", _PATH)
    env.setdefault("HOME", "/root")
    env.update(spec.env)
    if spec.inside:
        given = env.get("PYTHONPATH")
        env["PYTHONPATH"] = f"{INSIDE_PACKAGES}:{given}" if given else INSIDE_PACKAGES
    return env


def _start(spec: LaunchSpec, paths: GenerationPaths, installation: Installation) -> ProcessRef:
    for cache in spec.caches:
        Path(cache).mkdir(parents=True, exist_ok=True)
    init = InitSpec(
        network=spec.network,
        mounts=unit_mounts(spec, paths, installation),
        last_pid=ROOT_PID - 1,
        argv=root_argv(spec.argv, cwd=spec.cwd, deny_io_uring=spec.io_uring == "deny"),
        env=engine_environment(spec),
    )
    return start_init(installation.unit, init, paths)
