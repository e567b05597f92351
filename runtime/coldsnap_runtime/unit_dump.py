"""CRIU's dump of a unit's process tree, and the copies that are made while it stands still."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime import criu_rpc, fileset
from coldsnap_runtime.capture_seal import remove
from coldsnap_runtime.container import changed_files, image_identity
from coldsnap_runtime.criu_place import criu_inside
from coldsnap_runtime.dump_errors import copy_error, dump_error
from coldsnap_runtime.guard_place import GUARD
from coldsnap_runtime.mapped_files import collect
from coldsnap_runtime.namespaces import root_of
from coldsnap_runtime.preload_place import save_preloads
from coldsnap_runtime.template_files import FOLDER
from coldsnap_runtime.unit_capture import Capture, FileSetRecord
from coldsnap_runtime.unit_init import is_private
from coldsnap_runtime.unit_processes import (
    file_uses,
    last_pid,
    pid_max,
    processes,
    working_folder,
)
from coldsnap_runtime.unit_requests import CheckpointRequest

if TYPE_CHECKING:
    from coldsnap_runtime.installation import Installation
    from coldsnap_runtime.timing import Timing
    from coldsnap_runtime.unit_record import GenerationPaths, ProcessRef, UnitRecord

_DUMP_SECONDS = 600.0


class DumpWork:
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
    work = DumpWork(record, paths, folder, installation)
    work.caches = ()  # they are copied when a capture is taken, with what the engine made
    request = CheckpointRequest(record.unit, record.run, FOLDER, record.request_sha256)
    prepare(work)
    try:
        return dump(work, request, timing)
    except BaseException:
        remove(folder)
        raise


def prepare(work: DumpWork) -> None:
    remove(work.partial)
    work.partial.mkdir(parents=True, mode=0o700)
    for name in ("images", "files", "bin"):
        (work.partial / name).mkdir(mode=0o700)


def dump(work: DumpWork, request: CheckpointRequest, timing: Timing) -> Capture:
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


def _gather(work: DumpWork, request: CheckpointRequest) -> Capture:
    """Copy what belongs to the unit beside its memory; look at what does not."""
    pid = work.init.pid
    tree = processes(pid, work.record.root_pid)
    uses = [use for process in tree for use in file_uses(pid, process.pid)]
    files, deleted = collect(uses, work.is_private)
    folders = {working_folder(pid, process.pid) for process in tree}
    places = {"shm": "/dev/shm", "tmp": "/tmp"}  # noqa: S108  (inside the unit)
    places |= {f"cache-{number}": path for number, path in enumerate(work.caches)}
    sets = [save_set(work, name, place) for name, place in places.items()]
    if work.record.container:
        sets.append(save_set(work, "layer", "/", _own_layer(work)))
    shutil.copyfile(work.paths.unit_program, work.partial / "bin" / "coldsnap-unit")
    if (guard := work.paths.folder / GUARD).is_file():
        shutil.copyfile(guard, work.partial / "bin" / GUARD)
    save_preloads(work.paths.folder, work.partial / "bin")
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


def _own_layer(work: DumpWork) -> list[str]:
    """What the engine wrote into its container beside the folders that are private anyway."""
    mounted = tuple(str(mount["target"]) for mount in work.record.launch.get("mounts") or ())
    return [
        path.lstrip("/")
        for path in changed_files(work.record.container)
        if not is_private(path, (*work.caches, *mounted))
    ]


def save_set(work: DumpWork, name: str, place: str, only: list[str] | None = None) -> FileSetRecord:
    folder = work.root / place.lstrip("/")
    files = work.partial / "files"
    mounts = work.record.launch.get("mounts") or ()
    without = {work.root / str(mount["target"]).lstrip("/") for mount in mounts}
    size = fileset.save(folder, files / f"{name}.json", files / f"{name}.data", only, without)
    return FileSetRecord(name=name, path=place, files=size.files, bytes=size.bytes)


def _take_payload(work: DumpWork) -> None:
    """Model bytes that the engine exported while it was quiesced; linked, never copied."""
    target = work.partial / "payload"
    for name in ("payload.pack", "payload.index.json"):
        source = work.paths.control / name
        if source.is_file() and not source.is_symlink():
            target.mkdir(mode=0o700, exist_ok=True)
            os.link(source, target / name)
