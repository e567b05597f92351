"""Dump a quiesced unit with CRIU while it lives on, and gather all that a restore needs.

A capture is a folder ``{state_dir}/captures/<unit>/<capture id>/``: ``images/`` (CRIU), ``files/``
(/dev/shm, /tmp, caches), ``bin/`` (the root's program), ``payload/`` (model bytes that the engine
exported), ``capture.json`` (see `unit_capture`). Until it is whole its name ends in ``.partial``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime import criu_rpc, unit_expose
from coldsnap_runtime.capture_seal import remove, seal
from coldsnap_runtime.connections import outside_connections
from coldsnap_runtime.context import Context
from coldsnap_runtime.dump_errors import copy_error
from coldsnap_runtime.guard_place import refuse_mapped_image
from coldsnap_runtime.image_proof import make_rungs
from coldsnap_runtime.installation import Installation
from coldsnap_runtime.mapped_files import DigestCache, MappedFile, digested
from coldsnap_runtime.ownership import give_back_below
from coldsnap_runtime.template_capture import take
from coldsnap_runtime.template_files import is_template
from coldsnap_runtime.timing import Timing
from coldsnap_runtime.unit_capture import Capture
from coldsnap_runtime.unit_cuda import suspended
from coldsnap_runtime.unit_dump import DumpWork, dump, prepare, save_set
from coldsnap_runtime.unit_record import UnitStore
from coldsnap_runtime.unit_requests import CheckpointRequest

if TYPE_CHECKING:
    from coldsnap_runtime.canary import Ask

_LEFT_OVER_SECONDS = 120.0
_CLOSE_SECONDS = 3.0
"""For the engine to close the connections whose clients are gone."""


def checkpoint(
    request: CheckpointRequest,
    context: Context,
    installation: Installation,
    timing: Timing,
    resume: Callable[[], None],
    ask: Ask | None = None,
) -> dict[str, Any]:
    """Dump the unit; it must be quiesced. `resume` makes the engine serve again.

    `ask` hydrates a canary of the capture and demands the recorded answers of it.

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
    work = DumpWork(record, store.paths(record.unit, record.generation), partial, installation)
    how = _from_template if is_template(record) else _paused
    try:
        capture = how(work, request, context, timing, resume)
        with timing.span("digests"):
            capture = _digest_files(capture, work, context)
        # A parked template is no engine yet: it answers nobody.
        ask = None if is_template(record) else ask
        capture = make_rungs(capture, partial, context, installation, timing, ask)
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


def _paused(
    work: DumpWork,
    request: CheckpointRequest,
    context: Context,
    timing: Timing,
    resume: Callable[[], None],
) -> Capture:
    """The part during which the engine does not serve."""
    try:
        _check_ready(work, request)
        criu_rpc.wait_for_left_over(work.paths.work, _LEFT_OVER_SECONDS)
        prepare(work)
        context.phase(f"dumping unit {request.unit}")
        with context.uninterrupted():
            control = work.paths.control
            root = work.record.root_pid
            with suspended(work.init, root, control, timing, request.driver) as cuda:
                capture = replace(dump(work, request, timing), cuda=cuda)
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
    work: DumpWork,
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
                lambda name, place: save_set(work, name, place),
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


def _resume_after_failure(resume: Callable[[], None]) -> None:
    """The first error is the one to tell; an engine that is dead cannot resume anyway."""
    try:
        resume()
    except ColdSnapError:
        return


def _check_ready(work: DumpWork, request: CheckpointRequest) -> None:
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


def _digest_files(capture: Capture, work: DumpWork, context: Context) -> Capture:
    cache = DigestCache(Path(context.path("library-digests.json")))

    def locate(path: str) -> Path:
        return work.root / path.lstrip("/")

    context.phase("hashing mapped files")
    files: list[MappedFile] = digested(capture.mapped_files, locate, cache)
    cache.save()
    give_back_below(Path(context.path("library-digests.json")), context.state_dir)
    return capture.with_files(files)
