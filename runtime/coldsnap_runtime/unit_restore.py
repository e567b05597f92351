"""Bring a captured unit back as a fresh generation, beside whatever runs already.

What can be checked is checked first; then the ladder is gone down, one attempt a rung, one
deadline over all (see `coldsnap_runtime.restore_rungs`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.gpu_admission import admit_gpus, placed_gpus
from coldsnap_runtime.gpus import read_gpus
from coldsnap_runtime.host_room import check_memory, check_shm
from coldsnap_runtime.mapped_files import DigestCache, MappedFile, check
from coldsnap_runtime.ownership import give_back_unit
from coldsnap_runtime.restore_attempt import Attempt, Subject
from coldsnap_runtime.restore_checks import check_container, check_image, check_pids
from coldsnap_runtime.restore_rungs import PLAIN, Ladder, Left, goes_down, ladder_of
from coldsnap_runtime.rung_pages import RungPages
from coldsnap_runtime.template_release import hand_over
from coldsnap_runtime.timing import boottime
from coldsnap_runtime.unit_capture import Capture
from coldsnap_runtime.unit_placement import mount_of, placed
from coldsnap_runtime.unit_record import UnitStore
from coldsnap_runtime.unit_requests import LaunchSpec

if TYPE_CHECKING:
    from coldsnap_runtime.context import Context
    from coldsnap_runtime.cuda_checkpoint import Pairs
    from coldsnap_runtime.installation import Installation
    from coldsnap_runtime.timing import Timing
    from coldsnap_runtime.unit_record import GenerationPaths, UnitRecord
    from coldsnap_runtime.unit_requests import RestoreRequest

_SHARE = 0.5
"""Of the time that is left, for a rung that is not the last: one that hangs leaves the rest."""


@dataclass(frozen=True)
class Restored:
    record: UnitRecord
    process_image: dict[str, Any]
    """``rung``, ``bytes``, ``seconds``, ``gib_per_second``, ``threads``, ``pages_checked``,
    ``left`` (rungs that were not gone, or not to their end, with code and reason)."""


def restore(
    request: RestoreRequest, context: Context, installation: Installation, timing: Timing
) -> UnitRecord:
    """As `restore_by_ladder`; the record alone."""
    return restore_by_ladder(request, context, installation, timing).record


def restore_by_ladder(
    request: RestoreRequest, context: Context, installation: Installation, timing: Timing
) -> Restored:
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
        self._installation = installation
        self._capture = Capture.read(request.image)
        self._spec = placed(LaunchSpec.from_json(self._capture.launch), request)
        self._gpu_pairs: Pairs = ()
        self._devices: tuple[int, ...] | None = None
        """Of a template: the GPUs that its engine will see."""

    def run(self) -> Restored:
        with self._timing.span("check"):
            outputs = self._check()
        ladder = ladder_of(self._request.image_mode, self._request.image, self._capture)
        for item in ladder.left:
            self._context.log(f"image mode {item.rung} is not taken: {item.reason}")
            reason = f"not taken: {item.code}: {item.reason}"
            self._timing.add("ladder", boottime(), 0.0, rung=item.rung, reason=reason)
        subject = Subject(
            self._request,
            self._capture,
            self._spec,
            tuple(outputs),
            self._capture.cuda,
            self._gpu_pairs,
        )
        restored = self._climb(subject, ladder)
        if self._capture.template is not None:
            hand_over(self._paths(restored.record), self._capture.template, self._devices)
        return restored

    def _climb(self, subject: Subject, ladder: Ladder) -> Restored:
        """One attempt a rung; the PID namespace of each dies with it before the next begins."""
        end = time.monotonic() + self._request.deadline
        left = list(ladder.left)
        for rung in ladder.rungs:
            is_last = rung == ladder.rungs[-1]
            seconds = max(0.1, end - time.monotonic()) * (1.0 if is_last else _SHARE)
            pages = self._pages(rung, seconds, is_proven=rung not in ladder.unproven)
            try:
                record = self._attempt(subject, pages, left, seconds)
            except ColdSnapError as error:
                if is_last or not goes_down(error, rung):
                    error.details = (*error.details, *_told(left))
                    raise
                reason = "; ".join((error.message, *error.details[:1]))
                left.append(Left(rung, error.code, reason))
                self._context.log(f"image mode {rung} failed ({error.code}): {reason}")
                continue
            self._context.log(pages.told())
            report = {**pages.report(), "left": [item.to_json() for item in left]}
            return Restored(record, report)
        raise AssertionError("a ladder without rungs")

    def _attempt(
        self, subject: Subject, pages: RungPages, left: list[Left], seconds: float
    ) -> UnitRecord:
        with self._timing.span("ladder", rung=pages.rung) as span:
            try:
                self._before(pages.rung, left)
                attempt = Attempt(
                    subject,
                    self._context,
                    self._installation,
                    self._timing,
                    pages.rung,
                    pages.at_rest,
                )
                return attempt.run(seconds)
            except ColdSnapError as error:
                span.note(reason=f"{error.code}: {error.message}")
                raise

    def _pages(self, rung: str, seconds: float, *, is_proven: bool) -> RungPages:
        return RungPages(
            rung=rung,
            image=self._request.image,
            program=self._installation.fill,
            timing=self._timing,
            deadline=seconds,
            with_digests=self._request.verify != "record",
            compares=self._request.compare_pages or not is_proven,
        )

    def _before(self, rung: str, left: list[Left]) -> None:
        """The pages that CRIU reads itself, nobody checks on the way; the filler does its own.

        A digest that differed on an upper rung may be the original's fault: then there is no
        lower rung.
        """
        is_suspected = any(item.code == "fill.digest-differs" for item in left)
        is_unchecked = rung != "ext" and self._request.verify == "digest"
        if self._request.check_pages is not None and (is_suspected or is_unchecked):
            with self._timing.span("pages-hash", rung=rung):
                self._request.check_pages()
        elif is_suspected and rung == PLAIN:
            raise ColdSnapError(
                "image.damaged",
                "pages of the image differ from their digests",
                remedy="verify the artifact: coldsnap artifact verify; then restore another one",
            )

    def _paths(self, record: UnitRecord) -> GenerationPaths:
        return UnitStore(self._context.state_dir).paths(record.unit, record.generation)

    def _check(self) -> list[MappedFile]:
        check_image(self._capture, self._request.image)
        check_pids(self._capture)
        check_container(self._capture, self._spec)
        check_shm(self._capture, self._spec)
        is_mapped = self._request.image_mode == "mmap"
        check_memory(self._capture, self._request.image, is_mapped=is_mapped)
        if self._capture.cuda:
            devices = self._request.devices
            self._gpu_pairs = admit_gpus(self._capture.cuda, read_gpus(), devices)
        elif cuda := (self._capture.template or {}).get("cuda"):
            self._devices = placed_gpus(cuda, read_gpus(), self._request.devices)
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


def _told(left: list[Left]) -> tuple[str, ...]:
    return tuple(f"image mode {item.rung} before: {item.code}: {item.reason}" for item in left)
