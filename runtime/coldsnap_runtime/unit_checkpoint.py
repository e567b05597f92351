"""Dump a quiesced unit with CRIU while it lives on, and gather all that a restore needs.

A capture is a folder ``{state_dir}/captures/<unit>/<capture id>/``: ``images/`` (CRIU), ``files/``
(/dev/shm, /tmp, caches), ``bin/`` (the root's program), ``payload/`` (model bytes that the engine
exported), ``capture.json`` (see `unit_capture`). Until it is whole its name ends in ``.partial``.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime import criu_rpc, fileset, unit_expose
from coldsnap_runtime.capture_seal import remove, seal
from coldsnap_runtime.connections import outside_connections
from coldsnap_runtime.container import changed_files, image_identity
from coldsnap_runtime.context import Context
from coldsnap_runtime.criu_place import criu_inside
from coldsnap_runtime.dump_errors import copy_error, dump_error
from coldsnap_runtime.guard_place import GUARD, refuse_mapped_image
from coldsnap_runtime.image_proof import make_rungs
from coldsnap_runtime.installation import Installation
from coldsnap_runtime.mapped_files import DigestCache, MappedFile, collect, digested
from coldsnap_runtime.namespaces import root_of
from coldsnap_runtime.ownership import give_back_below
from coldsnap_runtime.template_capture import take
from coldsnap_runtime.template_files import FOLDER, is_template
from coldsnap_runtime.timing import Timing
from coldsnap_runtime.unit_capture import Capture, FileSetRecord
from coldsnap_runtime.unit_cuda import suspended
from coldsnap_runtime.unit_init import is_private
from coldsnap_runtime.unit_processes import (
    file_uses,
    last_pid,
    pid_max,
    processes,
    working_folder,
)
from coldsnap_runtime.unit_record import GenerationPaths, ProcessRef, UnitRecord, UnitStore
from coldsnap_runtime.unit_requests import CheckpointRequest

_DUMP_SECONDS = 600.0
_LEFT_OVER_SECONDS = 120.0
_CLOSE_SECONDS = 3.0
"""For the engine to close the connections whose clients are gone."""


def checkpoint(
    request: CheckpointRequest,
    context: Context,
    installation: Installation,
    timing: Timing,
    resume: Callable[[], None],
) -> dict[str, Any]:
    """Dump the unit; it must be quiesced. `resume` makes the engine serve again.

    `resume` is called exactly once, as soon as the processes run again, whether the dump
    succeeded or not; hashing and syncing come after. A failed capture leaves no folder.

    Raises:
        ColdSnapError: ``checkpoint.not-quiesced``, ``checkpoint.connections-open``,
            ``checkpoint.engine-died``, ``criu.dump-failed``, ``criu.timeout``,
            ``cuda.*``, ``file.disk-full``; what `resume` raises.
    """
    store = UnitStore(context.state_dir)
    record = store.live(request.unit, request.generation)
    folder = context_folder(context, request)
    partial = folder.with_name(folder.name + ".partial")
    work = _Work(record, store.paths(record.unit, record.generation), partial, installation)
    how = _from_template if is_template(record) else _paused
    try:
        capture = how(work, request, context, timing, resume)
        with timing.span("digests"):
            capture = _digest_files(capture, work, context)
        capture = make_rungs(capture, partial, context, installation, timing)
        result = seal(capture, partial, folder, timing)
    except BaseException as error:
        remove(partial)
        if isinstance(error, ColdSnapError):
            error.where = error.where or f"unit {request.unit}"
        raise
    finally:
        give_back_below(folder.parent, context.state_dir)
    result["capture_dir"] = os.fspath(folder)
    return result


def context_folder(context: Context, request: CheckpointRequest) -> Path:
    return Path(context.path("captures", request.unit, request.capture_id))


class _Work:
    """One dump: what is dumped, and where to."""

    def __init__(
        self,
        record: UnitRecord,
        paths: GenerationPaths,
        partial: Path,
        installation: Installation,
    ) -> None:
        assert record.init is not None  # noqa: S101  (live records have one)
        self.record = record
        self.paths = paths
        self.partial = partial
        self.installation = installation
        self.init: ProcessRef = record.init
        self.caches = tuple(record.launch.get("caches") or ())
        self.root = root_of(self.init.pid)

    def is_private(self, path: str) -> bool:
        return is_private(path, self.caches)


def _paused(
    work: _Work,
    request: CheckpointRequest,
    context: Context,
    timing: Timing,
    resume: Callable[[], None],
) -> Capture:
    """The part during which the engine does not serve."""
    try:
        _check_ready(work, request)
        criu_rpc.wait_for_left_over(work.paths.work, _LEFT_OVER_SECONDS)
        _prepare(work)
        context.phase(f"dumping unit {request.unit}")
        with context.uninterrupted():
            control = work.paths.control
            root = work.record.root_pid
            with suspended(work.init, root, control, timing, request.driver) as cuda:
                capture = replace(_dump(work, request, timing), cuda=cuda)
    except BaseException:
        remove(work.partial)  # a full disk must not keep the engine from serving
        _resume_after_failure(resume)
        raise
    else:
        with timing.span("resume"):
            resume()
        return capture
    finally:
        unit_expose.go_on(work.record)


def _from_template(
    work: _Work,
    request: CheckpointRequest,
    context: Context,
    timing: Timing,
    resume: Callable[[], None],
) -> Capture:
    """Of an engine whose template was dumped before it started: what it made since is copied."""
    context.phase(f"gathering what unit {request.unit} starts from")
    try:
        with timing.span("gather"):
            capture = take(
                work.record,
                work.paths,
                request,
                work.partial,
                lambda name, place: _save_set(work, name, place),
            )
    except BaseException as error:
        remove(work.partial)
        _resume_after_failure(resume)
        if isinstance(error, OSError):
            raise copy_error(error, work.partial) from error
        raise
    with timing.span("resume"):
        resume()
    return capture


def dump_parked(
    record: UnitRecord,
    paths: GenerationPaths,
    folder: Path,
    installation: Installation,
    timing: Timing,
) -> Capture:
    """Dump a template that waits to be released into `folder`; it waits on.

    Raises:
        ColdSnapError: ``criu.dump-failed``, ``criu.timeout``, ``file.disk-full``.
    """
    work = _Work(record, paths, folder, installation)
    work.caches = ()  # they are copied when a capture is taken, with what the engine made
    request = CheckpointRequest(record.unit, record.run, FOLDER, record.request_sha256)
    _prepare(work)
    try:
        return _dump(work, request, timing)
    except BaseException:
        remove(folder)
        raise


def _resume_after_failure(resume: Callable[[], None]) -> None:
    """The first error is the one to tell; an engine that is dead cannot resume anyway."""
    try:
        resume()
    except ColdSnapError:
        return


def _check_ready(work: _Work, request: CheckpointRequest) -> None:
    if work.record.state != "quiesced":
        raise ColdSnapError(
            "checkpoint.not-quiesced",
            f"generation {work.record.generation} is {work.record.state}, not quiesced",
            remedy="quiesce it first (core.quiesce)",
        )
    refuse_mapped_image(work.init.pid, work.record.root_pid)
    unit_expose.hold(work.record)
    unit_expose.cut(work.record)  # the engine is drained: what is still open is idle
    open_ones = outside_connections(work.init.pid, work.record.root_pid)
    deadline = time.monotonic() + _CLOSE_SECONDS
    while open_ones and time.monotonic() < deadline:
        time.sleep(0.02)
        open_ones = outside_connections(work.init.pid, work.record.root_pid)
    if open_ones:
        raise ColdSnapError(
            "checkpoint.connections-open",
            f"{len(open_ones)} connection(s) of unit {request.unit} lead out of it",
            details=tuple(str(connection) for connection in open_ones[:20]),
            cause="a client is still connected, or the engine keeps a connection to a service",
            remedy="let clients disconnect, and switch off what the engine reports to (telemetry, "
            "hubs)",
        )


def _prepare(work: _Work) -> None:
    remove(work.partial)
    work.partial.mkdir(parents=True, mode=0o700)
    for name in ("images", "files", "bin"):
        (work.partial / name).mkdir(mode=0o700)


def _dump(work: _Work, request: CheckpointRequest, timing: Timing) -> Capture:
    captures: list[Capture] = []

    def on_phase(phase: str) -> None:
        if phase == "post-dump":  # everything stands still, and CRIU's links are in place
            with timing.span("files"):
                captures.append(_gather(work, request))

    job = criu_rpc.CriuJob(
        operation="dump",
        criu=criu_inside(work.installation, work.init),
        unit_program=work.installation.unit,
        init=work.init,
        images=work.partial / "images",
        work=work.paths.work,
        root_pid=work.record.root_pid,
        deadline=_DUMP_SECONDS,
        notify=on_phase,
    )
    with timing.span("criu-dump"):
        try:
            criu_rpc.run(job)
        except ColdSnapError as error:
            raise dump_error(error, work.init, work.record.root_pid) from None
        except OSError as error:
            raise copy_error(error, work.partial) from error
    return captures[0]


def _gather(work: _Work, request: CheckpointRequest) -> Capture:
    """Copy what belongs to the unit beside its memory; look at what does not."""
    pid = work.init.pid
    tree = processes(pid, work.record.root_pid)
    uses = [use for process in tree for use in file_uses(pid, process.pid)]
    files, deleted = collect(uses, work.is_private)
    folders = {working_folder(pid, process.pid) for process in tree}
    places = {"shm": "/dev/shm", "tmp": "/tmp"}  # noqa: S108  (inside the unit)
    places |= {f"cache-{number}": path for number, path in enumerate(work.caches)}
    sets = [_save_set(work, name, place) for name, place in places.items()]
    if work.record.container:
        sets.append(_save_set(work, "layer", "/", _own_layer(work)))
    shutil.copyfile(work.paths.unit_program, work.partial / "bin" / "coldsnap-unit")
    if (guard := work.paths.folder / GUARD).is_file():
        shutil.copyfile(guard, work.partial / "bin" / GUARD)
    _take_payload(work)
    record = work.record
    return Capture(
        capture_id=request.capture_id,
        request_sha256=request.request_sha256 or record.request_sha256,
        unit=record.unit,
        engine=record.engine,
        model=record.model,
        launch=record.launch,
        launch_sha256=record.launch_sha256,
        root_pid=record.root_pid,
        last_pid=last_pid(pid, pid_max()),
        network=record.network,
        file_sets=tuple(sets),
        mapped_files=tuple(files),
        deleted_files=tuple(deleted),
        folders=tuple(sorted(f for f in folders if not work.is_private(f))),
        processes=tuple(tree),
        image_id=image_identity(record.launch["image"]) if record.container else "",
    )


def _own_layer(work: _Work) -> list[str]:
    """What the engine wrote into its container beside the folders that are private anyway."""
    mounted = tuple(str(mount["target"]) for mount in work.record.launch.get("mounts") or ())
    return [
        path.lstrip("/")
        for path in changed_files(work.record.container)
        if not is_private(path, (*work.caches, *mounted))
    ]


def _save_set(work: _Work, name: str, place: str, only: list[str] | None = None) -> FileSetRecord:
    folder = work.root / place.lstrip("/")
    files = work.partial / "files"
    mounts = work.record.launch.get("mounts") or ()
    without = {work.root / str(mount["target"]).lstrip("/") for mount in mounts}
    size = fileset.save(folder, files / f"{name}.json", files / f"{name}.data", only, without)
    return FileSetRecord(name=name, path=place, files=size.files, bytes=size.bytes)


def _take_payload(work: _Work) -> None:
    """Model bytes that the engine exported while it was quiesced; linked, never copied."""
    target = work.partial / "payload"
    for name in ("payload.pack", "payload.index.json"):
        source = work.paths.control / name
        if source.is_file() and not source.is_symlink():
            target.mkdir(mode=0o700, exist_ok=True)
            os.link(source, target / name)


def _digest_files(capture: Capture, work: _Work, context: Context) -> Capture:
    cache = DigestCache(Path(context.path("library-digests.json")))

    def locate(path: str) -> Path:
        return work.root / path.lstrip("/")

    context.phase("hashing mapped files")
    files: list[MappedFile] = digested(capture.mapped_files, locate, cache)
    cache.save()
    give_back_below(Path(context.path("library-digests.json")), context.state_dir)
    return capture.with_files(files)
