"""At a capture, while the engine serves again: make the faster rungs, and prove each once.

A rung is proven by a canary: the capture restored in namespaces of its own, every page compared
while all processes stand still, and the tree ended before it ran a single instruction. Nothing
here makes a capture fail: what cannot be made or proven is recorded with its reason.
"""

from __future__ import annotations

import importlib
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.context import Context
from coldsnap_runtime.guard_place import why_no_mmap
from coldsnap_runtime.page_filler import INDEX
from coldsnap_runtime.restore_attempt import Attempt, Subject
from coldsnap_runtime.restore_rungs import EXT, MMAP
from coldsnap_runtime.rung_pages import RungPages
from coldsnap_runtime.timing import Timing
from coldsnap_runtime.unit_record import UnitStore
from coldsnap_runtime.unit_requests import LaunchSpec, RestoreRequest
from coldsnap_runtime.unit_stop import end_generation

if TYPE_CHECKING:
    from coldsnap_runtime.installation import Installation
    from coldsnap_runtime.unit_capture import Capture
    from coldsnap_runtime.unit_record import ProcessRef

CANARY = ".canary"
"""Ending of the folder that a canary has for its state; beside the capture."""
_CANARY_SECONDS = 300.0
_ROOM = 1 << 30
"""Bytes of memory that must stay free beside a canary."""


class _ProvenError(ColdSnapError):
    """All pages are right; raised so that CRIU ends the tree."""


def make_rungs(
    capture: Capture, partial: Path, context: Context, installation: Installation, timing: Timing
) -> Capture:
    """The capture with ``process_image``, and the folders of its rungs in `partial`.

    Only Cancelled comes out of it.
    """
    for path in (partial / "images").iterdir():
        path.chmod(0o400)  # as it will be: a rung may note size and mode of a file that it maps
    found: dict[str, Any] = {"format": 1, "rungs": {}, "sizes": []}
    with timing.span("process-image"):
        context.phase(f"making the process image of unit {capture.unit} fast to restore")
        proof = _Proof(capture, partial, context, installation, timing)
        for rung in (EXT, MMAP):
            found["rungs"][rung] = proof.verdict(rung)
        found["sizes"] = proof.sizes()
    return replace(capture, process_image=found)


def end_canaries(context: Context, unit: str) -> None:
    """End and remove what a verb that was killed has left; the caller holds the unit's lock."""
    for folder in Path(context.path("captures", unit)).glob(f"*{CANARY}"):
        _end(folder)


class _Proof:
    def __init__(
        self,
        capture: Capture,
        partial: Path,
        context: Context,
        installation: Installation,
        timing: Timing,
    ) -> None:
        self._capture = capture
        self._partial = partial
        self._context = context
        self._installation = installation
        self._timing = timing

    def verdict(self, rung: str) -> dict[str, Any]:
        """``{proven, level, pages, differences, bytes, reason}`` of one rung."""
        if rung == MMAP:
            mapped = [file.path for file in self._capture.mapped_files]
            if reason := why_no_mmap(self._capture.launch, mapped):
                return _unproven(reason)
        try:
            made = self._rewritten(rung)
        except Exception as error:  # noqa: BLE001  (a capture without it is as good as before)
            shutil.rmtree(self._partial / rung, ignore_errors=True)
            self._context.log(f"no {rung} images: {_words(error)}")
            return _unproven(_words(error))
        verdict = self._canary(rung)
        if verdict["reason"]:
            self._context.log(f"{rung} images are not proven: {verdict['reason']}")
        return {**made, **verdict}

    def sizes(self) -> list[Any]:
        """What the dumped memory is, by process and kind; empty if that cannot be told."""
        try:
            module = importlib.import_module("coldsnap_runtime.process_image")
            return list(module.sizes(self._partial / "images"))
        except Exception as error:  # noqa: BLE001  (a table for people is no reason to fail)
            self._context.log(f"memory by kind is not known: {_words(error)}")
            return []

    def _rewritten(self, rung: str) -> dict[str, Any]:
        with self._timing.span("rewrite", rung=rung) as span:
            module = importlib.import_module("coldsnap_runtime.process_image")
            images, target = self._partial / "images", self._partial / rung
            made = module.rewrite(images, target, rung, self._installation.fill)
            if not (target / INDEX).is_file():
                raise ColdSnapError("image.unsupported", "no pages can be taken out")
            span.note(bytes=made.bytes_moved)
        return {
            "bytes": made.bytes_moved,
            "bytes_kept": made.bytes_kept,
            "runs": made.runs,
            "areas": made.areas,
        }

    def _canary(self, rung: str) -> dict[str, Any]:
        if reason := self._why_not():
            return _unproven(reason)
        folder = self._partial.with_name(self._partial.name.removesuffix(".partial") + CANARY)
        _end(folder)
        pages = RungPages(
            rung=rung,
            image=self._partial,
            program=self._installation.fill,
            timing=self._timing,
            deadline=_CANARY_SECONDS,
            with_digests=True,
            compares=True,
            is_background=True,
        )

        def at_rest(init: ProcessRef) -> None:
            pages.at_rest(init)
            raise _ProvenError("canary.proven", "every page is right")

        try:
            folder.mkdir(mode=0o700)
            with self._timing.span("canary", rung=rung):
                self._attempt(rung, folder, at_rest)
        except _ProvenError:
            return _proven(pages)
        except Exception as error:  # noqa: BLE001  (unproven is no failure)
            return _unproven(_words(error)) | _differences(error)
        finally:
            _end(folder)
        return _unproven("CRIU did not say when the processes were back")

    def _attempt(self, rung: str, folder: Path, at_rest: Any) -> None:
        spec = replace(LaunchSpec.from_json(self._capture.launch), network="private", ports=())
        request = RestoreRequest(self._capture.unit, "canary", self._partial, "")
        outputs = tuple(file for file in self._capture.mapped_files if file.is_output)
        context = Context(os.fspath(folder), self._context.pack, _unheard)
        # Without the CUDA state: the processes never run, and the device has none to spare.
        subject = Subject(request, self._capture, spec, outputs)
        Attempt(subject, context, self._installation, Timing(), rung, at_rest).run(_CANARY_SECONDS)

    def _why_not(self) -> str:
        """Room for a second tree; it shares nothing with the one that serves."""
        needed = _image_bytes(self._partial) + _ROOM
        needed += sum(s.bytes for s in self._capture.file_sets if s.name == "shm")
        free = available_memory()
        if free < needed:
            return f"memory is short for a canary: {needed >> 20} MiB needed, {free >> 20} free"
        return ""


def available_memory() -> int:
    """Bytes that can be used without swapping; 0 if the kernel does not say."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError):
        return 0
    return 0


def _image_bytes(partial: Path) -> int:
    return sum(path.stat().st_size for path in (partial / "images").glob("pages-*.img"))


def _proven(pages: RungPages) -> dict[str, Any]:
    found = pages.compared
    return {
        "proven": True,
        "level": "pages",
        "pages": int(found.get("pages") or 0),
        "differences": int(found.get("differences") or 0),
        "reason": "",
    }


def _unproven(reason: str) -> dict[str, Any]:
    return {"proven": False, "level": "", "pages": 0, "differences": 0, "reason": reason}


def _differences(error: BaseException) -> dict[str, Any]:
    if isinstance(error, ColdSnapError) and error.code == "fill.memory-differs":
        for line in error.details:
            name, _, value = line.partition(": ")
            if name == "differences" and value.isdigit():
                return {"differences": int(value)}
        return {"differences": 1}
    return {}


def _words(error: BaseException) -> str:
    if isinstance(error, ColdSnapError):
        return "; ".join((error.message, *error.details[:1]))
    return str(error) or type(error).__name__


def _end(folder: Path) -> None:
    """End the generations of a canary's state folder, and remove it."""
    if not folder.is_dir():
        return
    store = UnitStore(folder)
    for unit in store.units():
        for record in store.generations(unit):
            if record.is_live:
                end_generation(record)
    shutil.rmtree(folder, ignore_errors=True)


def _unheard(event: dict[str, Any]) -> None:
    """Nobody is told of the phases of a canary."""
