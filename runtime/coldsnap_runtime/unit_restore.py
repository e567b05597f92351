"""Bring a captured unit back as a fresh generation, beside whatever runs already."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime import criu_rpc, fileset
from coldsnap_runtime.context import Context
from coldsnap_runtime.criu_place import criu_inside
from coldsnap_runtime.cuda_checkpoint import CudaSquad, Pairs
from coldsnap_runtime.gpu_admission import admit_gpus
from coldsnap_runtime.gpus import read_gpus
from coldsnap_runtime.installation import Installation
from coldsnap_runtime.mapped_files import DigestCache, MappedFile, check
from coldsnap_runtime.namespaces import root_of
from coldsnap_runtime.ownership import give_back_unit
from coldsnap_runtime.restore_checks import check_container, check_image, check_pids
from coldsnap_runtime.timing import Timing
from coldsnap_runtime.unit_capture import Capture, FileSetRecord
from coldsnap_runtime.unit_cuda import bring_back
from coldsnap_runtime.unit_generation import discard_generation, make_generation, port_records
from coldsnap_runtime.unit_init import INSIDE_LOG, INSIDE_PAYLOAD, UnitMount
from coldsnap_runtime.unit_placement import launch_here, mount_of, placed
from coldsnap_runtime.unit_record import (
    GenerationPaths,
    ProcessRef,
    UnitRecord,
    UnitStore,
)
from coldsnap_runtime.unit_requests import LaunchSpec, RestoreRequest
from coldsnap_runtime.unit_start import Started, StartPlan, start_unit


def restore(
    request: RestoreRequest, context: Context, installation: Installation, timing: Timing
) -> UnitRecord:
    """Restore the image as a new generation in state ``restored``; it is not exposed.

    Everything that can be checked is checked before anything is started. Older generations are
    not touched.

    Raises:
        ColdSnapError: ``image.incomplete``, ``image.damaged``, ``image.file-set-damaged``,
            ``restore.library-changed``, ``gpu.*``, ``unit.start-failed``, ``cuda.*``,
            ``criu.restore-failed``, ``criu.timeout``, ``file.disk-full``. Nothing of the
            generation is left then.
    """
    try:
        return _Restore(request, context, installation, timing).run()
    except ColdSnapError as error:
        error.where = error.where or f"unit {request.unit}"
        raise
    finally:
        give_back_unit(UnitStore(context.state_dir).unit_dir(request.unit), context.state_dir)


class _Restore:
    def __init__(
        self,
        request: RestoreRequest,
        context: Context,
        installation: Installation,
        timing: Timing,
    ) -> None:
        self._request = request
        self._context = context
        self._timing = timing
        self._store = UnitStore(context.state_dir)
        self._capture = Capture.read(request.image)
        self._spec = placed(LaunchSpec.from_json(self._capture.launch), request)
        program = request.image / "bin" / "coldsnap-unit"
        self._outer = installation
        # The root's own program is part of the image: it must be the captured one.
        self._installation = replace(installation, unit=program)
        self._started: Started | None = None
        self._gpu_pairs: Pairs = ()

    def run(self) -> UnitRecord:
        with self._timing.span("check"):
            outputs = self._check()
        number, paths = make_generation(self._store, self._request.unit, self._installation)
        record = self._record(number)
        try:
            self._store.save(record)
            with self._timing.span("files"):
                self._put_back_folders(paths)
            with self._timing.span("namespaces"), self._context.uninterrupted():
                self._started = start_unit(self._plan(number, paths), paths, self._outer)
                init = self._started.init
                record = self._store.update(record, init=init, container=self._started.container)
            with self._timing.span("shm"):
                self._put_back_inside(root_of(init.pid))
            self._bring_back_processes(init, paths, outputs)
            return self._store.update(record, state="restored", since=time.time())
        except BaseException as error:
            self._keep_log(paths, error)
            self._discard(paths)
            if isinstance(error, OSError):
                raise _failed(error) from error
            raise

    def _discard(self, paths: GenerationPaths) -> None:
        if self._started is None:
            discard_generation(paths, None)
        else:
            discard_generation(paths, self._started.init, self._started.container)

    def _check(self) -> list[MappedFile]:
        check_image(self._capture, self._request.image)
        check_pids(self._capture)
        check_container(self._capture, self._spec)
        if self._capture.cuda:
            devices = self._request.devices
            self._gpu_pairs = admit_gpus(self._capture.cuda, read_gpus(), devices)
        cache = DigestCache(Path(self._context.path("library-digests.json")))
        is_full = self._request.verify == "full"
        files = [file for file in self._capture.mapped_files if self._is_of_host(file.path)]
        outputs = check(files, self._locate, cache, is_full=is_full)
        cache.save()
        folders = [folder for folder in self._capture.folders if self._is_of_host(folder)]
        missing = [folder for folder in folders if not self._locate(folder).is_dir()]
        if missing:
            raise ColdSnapError(
                "restore.folder-missing",
                f"{missing[0]}, in which a captured process works, is not there",
                remedy="create the folder, or capture again",
            )
        return outputs

    def _is_of_host(self, path: str) -> bool:
        """Whether the host brings it: all but the files of a container's image."""
        return not self._capture.image_id or mount_of(self._spec, path) is not None

    def _locate(self, path: str) -> Path:
        """Where a path inside the unit will be on the host."""
        mount = mount_of(self._spec, path)
        if mount is None:
            return Path(path)
        return Path(mount.source + path[len(mount.target.rstrip("/")) :])

    def _record(self, number: int) -> UnitRecord:
        capture = self._capture
        return UnitRecord(
            unit=self._request.unit,
            generation=number,
            state="starting",
            engine=capture.engine,
            model=capture.model,
            launch_sha256=capture.launch_sha256,
            request_sha256=capture.request_sha256,
            run=self._request.run,
            artifact=self._request.artifact,
            since=time.time(),
            init=ProcessRef.of(os.getpid()),
            root_pid=capture.root_pid,
            ports=port_records(self._spec.ports),
            network=capture.network,
            runtime=self._spec.runtime,
            launch=launch_here(capture.launch, self._spec),
        )

    def _plan(self, number: int, paths: GenerationPaths) -> StartPlan:
        caches = tuple(
            UnitMount("bind", os.fspath(paths.caches / record.name), record.path)
            for record in self._capture.file_sets
            if record.name.startswith("cache-")
        )
        payloads = tuple(
            UnitMount("bind-read-only", os.fspath(path), f"{INSIDE_PAYLOAD}/{name}")
            for name, path in self._request.payloads
        )
        return StartPlan(
            unit=self._request.unit,
            generation=number,
            spec=self._spec,
            last_pid=self._capture.last_pid,
            root_pid=self._capture.root_pid,
            further_mounts=(*caches, *payloads),
        )

    def _put_back_folders(self, paths: GenerationPaths) -> None:
        """What a folder on disk will hold: /tmp and the caches, private to this generation."""
        for record in self._capture.file_sets:
            if record.name == "tmp":
                self._put_back(record, paths.tmp)
            elif record.name.startswith("cache-"):
                folder = paths.caches / record.name
                folder.mkdir(parents=True)
                self._put_back(record, folder)

    def _put_back_inside(self, root: Path) -> None:
        """What only exists once the namespaces do: /dev/shm, a container's own layer."""
        self._put_back(self._set("shm"), root / "dev" / "shm")
        if self._capture.image_id:
            self._put_back(self._set("layer"), root)

    def _set(self, name: str) -> FileSetRecord:
        for record in self._capture.file_sets:
            if record.name == name:
                return record
        raise ColdSnapError("image.incomplete", f"the image has no file set {name}")

    def _put_back(self, record: FileSetRecord, folder: Path) -> None:
        files = self._request.image / "files"
        fileset.put_back(folder, files / f"{record.name}.json", files / f"{record.name}.data")

    def _bring_back_processes(
        self, init: ProcessRef, paths: GenerationPaths, outputs: list[MappedFile]
    ) -> None:
        """CRIU, then the driver; its library starts while CRIU works."""
        cuda = self._capture.cuda
        with CudaSquad(len(cuda["processes"]) if cuda else 0) as squad:
            with self._timing.span("criu-restore"):
                self._run_criu(init, paths, outputs)
            if cuda:
                with self._timing.span("cuda-restore"):
                    bring_back(squad, init, cuda, self._gpu_pairs, self._timing)

    def _run_criu(
        self, init: ProcessRef, paths: GenerationPaths, outputs: list[MappedFile]
    ) -> None:
        self._context.phase(f"restoring unit {self._request.unit}")
        root = root_of(init.pid)
        attached = [(INSIDE_LOG, os.O_WRONLY | os.O_APPEND)]
        attached += [(file.path, file.flags) for file in outputs]
        inherit: list[tuple[str, int]] = []
        try:
            for path, flags in attached:
                # Through the unit's root, so that the descriptor is of a mount inside the unit:
                # else the next dump would not know it.
                name = path.lstrip("/")
                inherit.append((name, _open_output(root / name, flags)))
            criu_rpc.run(
                criu_rpc.CriuJob(
                    operation="restore",
                    criu=criu_inside(self._outer, init),
                    unit_program=self._outer.unit,
                    init=init,
                    images=self._request.image / "images",
                    work=paths.work,
                    inherit=tuple(inherit),
                    deadline=self._request.deadline,
                )
            )
        finally:
            for _, descriptor in inherit:
                os.close(descriptor)

    def _keep_log(self, paths: GenerationPaths, error: BaseException) -> None:
        """CRIU's log outlives the generation that it could not restore."""
        log = paths.work / "restore.log"
        if not isinstance(error, ColdSnapError) or not log.exists():
            return
        kept = self._store.unit_dir(self._request.unit) / "restore-failed.log"
        try:
            shutil.copyfile(log, kept)
        except OSError:
            return
        error.details = tuple(
            line.replace(os.fspath(log), os.fspath(kept)) for line in error.details
        )
        error.remedy = error.remedy.replace(os.fspath(log), os.fspath(kept))


def _open_output(path: Path, flags: int) -> int:
    """A file that is only written: it may have grown, or be gone with an old log."""
    kept = flags & (os.O_APPEND | os.O_SYNC | os.O_DSYNC)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | kept, 0o644)
    os.lseek(descriptor, 0, os.SEEK_END)
    return descriptor


def _failed(error: OSError) -> ColdSnapError:
    is_full = "No space left" in str(error)
    return ColdSnapError(
        "file.disk-full" if is_full else "restore.failed",
        f"the unit's files could not be put back: {error}",
        remedy="free space (the state folder, or raise shm)" if is_full else "",
    )
