"""One attempt to bring a captured tree back: fresh namespaces, fresh folders, CRIU inside.

An attempt that fails leaves nothing: its PID namespace has ended, and with it every process.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime import criu_rpc, fileset
from coldsnap_runtime.beside import Beside
from coldsnap_runtime.criu_place import criu_inside
from coldsnap_runtime.cuda_checkpoint import CudaSquad, Pairs
from coldsnap_runtime.guard_place import keep_guard
from coldsnap_runtime.namespaces import root_of
from coldsnap_runtime.preload_place import keep_preloads, write_nvml_map
from coldsnap_runtime.restore_rungs import MMAP, assemble
from coldsnap_runtime.unit_cuda import bring_back
from coldsnap_runtime.unit_generation import discard_generation, make_generation, port_records
from coldsnap_runtime.unit_init import INSIDE_IMAGE, INSIDE_LOG, INSIDE_PAYLOAD, UnitMount
from coldsnap_runtime.unit_placement import launch_here
from coldsnap_runtime.unit_record import GenerationPaths, ProcessRef, UnitRecord, UnitStore
from coldsnap_runtime.unit_start import Started, StartPlan, start_unit

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldsnap_runtime.context import Context
    from coldsnap_runtime.installation import Installation
    from coldsnap_runtime.mapped_files import MappedFile
    from coldsnap_runtime.timing import Timing
    from coldsnap_runtime.unit_capture import Capture, FileSetRecord
    from coldsnap_runtime.unit_requests import LaunchSpec, RestoreRequest

    AtRest = Callable[[ProcessRef], None]


@dataclass(frozen=True)
class Subject:
    """What all attempts of a restore share; everything in it was checked."""

    request: RestoreRequest
    capture: Capture
    spec: LaunchSpec
    outputs: tuple[MappedFile, ...] = ()
    """Files that are only written: attached anew."""
    cuda: dict[str, Any] | None = None
    gpu_pairs: Pairs = ()


class Attempt:
    """`at_rest` is called when all processes are back and stand still; raising ends them."""

    def __init__(
        self,
        subject: Subject,
        context: Context,
        installation: Installation,
        timing: Timing,
        rung: str,
        at_rest: AtRest,
    ) -> None:
        self._subject = subject
        self._request = subject.request
        self._capture = subject.capture
        self._context = context
        self._timing = timing
        self._rung = rung
        self._at_rest = at_rest
        self._store = UnitStore(context.state_dir)
        self._outer = installation
        self._started: Started | None = None
        self._folders: Beside | None = None

    def run(self, deadline: float) -> UnitRecord:
        """The new generation in state ``restored``; CRIU gets `deadline` seconds.

        Raises:
            ColdSnapError: as `coldsnap_runtime.unit_restore.restore`; what `at_rest` raises.
        """
        # The root's own program is part of the image: it must be the captured one.
        program = self._request.image / "bin" / "coldsnap-unit"
        installation = replace(self._outer, unit=program)
        number, paths = make_generation(self._store, self._request.unit, installation)
        record = self._record(number)
        try:
            self._store.save(record)
            places = self._make_folders(paths)
            with self._context.uninterrupted():  # else it could be begun and not known
                self._folders = Beside("files", lambda: self._fill_folders(places), self._timing)
            with self._timing.span("images"):
                images = assemble(
                    self._request.image,
                    self._rung,
                    paths.folder / "images",
                    huge_pages=self._request.huge_pages,
                )
            with self._timing.span("namespaces"), self._context.uninterrupted():
                self._started = start_unit(self._plan(number, paths), paths, self._outer)
                init = self._started.init
                record = self._store.update(record, init=init, container=self._started.container)
            with self._timing.span("shm"):
                self._put_back_inside(root_of(init.pid))
            self._bring_back_processes(init, paths, images, deadline)
            if images.is_relative_to(paths.folder):
                shutil.rmtree(images, ignore_errors=True)
            return self._store.update(record, state="restored", since=time.time())
        except BaseException as error:
            if self._folders is not None:
                self._folders.end()
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

    def _record(self, number: int) -> UnitRecord:
        capture, spec = self._capture, self._subject.spec
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
            ports=port_records(spec.ports),
            network=spec.network,
            runtime=spec.runtime,
            launch=launch_here(capture.launch, spec),
        )

    def _plan(self, number: int, paths: GenerationPaths) -> StartPlan:
        image = self._request.image
        mounts = [
            UnitMount("bind", os.fspath(paths.caches / record.name), record.path)
            for record in self._capture.file_sets
            if record.name.startswith("cache-")
        ]
        mounts += [
            UnitMount("bind-read-only", os.fspath(path), f"{INSIDE_PAYLOAD}/{name}")
            for name, path in self._request.payloads
        ]
        mounts += keep_guard(image, paths.folder)
        mounts += keep_preloads(image / "bin", paths.folder)
        if self._rung == MMAP:
            mounts.append(UnitMount("bind-read-only", os.fspath(image / "images"), INSIDE_IMAGE))
        return StartPlan(
            unit=self._request.unit,
            generation=number,
            spec=self._subject.spec,
            last_pid=self._capture.last_pid,
            root_pid=self._capture.root_pid,
            further_mounts=tuple(mounts),
        )

    def _make_folders(self, paths: GenerationPaths) -> list[tuple[FileSetRecord, Path]]:
        """What lies on disk: /tmp and the caches, private to this generation. Mounts need them."""
        places = []
        for record in self._capture.file_sets:
            if record.name == "tmp":
                places.append((record, paths.tmp))
            elif record.name.startswith("cache-"):
                folder = paths.caches / record.name
                folder.mkdir(parents=True)
                places.append((record, folder))
        return places

    def _fill_folders(self, places: list[tuple[FileSetRecord, Path]]) -> None:
        for record, folder in places:
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
        self, init: ProcessRef, paths: GenerationPaths, images: Path, deadline: float
    ) -> None:
        """CRIU, then the driver; its library starts while CRIU works.

        CRIU starts while files are still put back; before it makes the first process they must be.
        """
        cuda = self._subject.cuda
        with CudaSquad(len(cuda["processes"]) if cuda else 0) as squad:
            with self._timing.span("criu-restore", rung=self._rung):
                self._run_criu(init, paths, images, deadline)
            if cuda:
                if "nvml" in (self._capture.launch.get("preload") or ()):
                    write_nvml_map(paths.control, cuda["gpus"], self._subject.gpu_pairs)
                with self._timing.span("cuda-restore"):
                    bring_back(squad, init, cuda, self._subject.gpu_pairs, self._timing)

    def _run_criu(
        self, init: ProcessRef, paths: GenerationPaths, images: Path, deadline: float
    ) -> None:
        self._context.phase(f"restoring unit {self._request.unit} ({self._rung})")
        root = root_of(init.pid)
        attached = [(INSIDE_LOG, os.O_WRONLY | os.O_APPEND)]
        attached += [(file.path, file.flags) for file in self._subject.outputs]
        inherit: list[tuple[str, int]] = []

        def on_phase(phase: str) -> None:
            if self._folders is not None:
                self._folders.wait()
            if phase == "post-restore":  # all mappings are final, and nobody runs yet
                self._at_rest(init)

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
                    images=images,
                    work=paths.work,
                    inherit=tuple(inherit),
                    deadline=deadline,
                    notify=on_phase,
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
