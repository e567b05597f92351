"""At a capture, while the engine serves again: make the faster rungs, and prove each once.

A rung is proven by a canary (see `coldsnap_runtime.canary`). Nothing here makes a capture fail:
what cannot be made or proven is recorded with its reason.
"""

from __future__ import annotations

import importlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.canary import Canary
from coldsnap_runtime.guard_place import INSIDE_GUARD, why_no_mmap
from coldsnap_runtime.page_filler import INDEX
from coldsnap_runtime.restore_rungs import EXT, MMAP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldsnap_runtime.canary import Ask
    from coldsnap_runtime.context import Context
    from coldsnap_runtime.installation import Installation
    from coldsnap_runtime.rung_pages import RungPages
    from coldsnap_runtime.timing import Timing
    from coldsnap_runtime.unit_capture import Capture

_ROOM = 1 << 30
"""Bytes of memory that must stay free beside a canary."""
_AREAS = 128
"""Areas of memory that the descriptor names one by one."""
_ANSWER_SHARE = 1.5
"""Memory of a canary that runs, in sizes of image and payload."""


def make_rungs(
    capture: Capture,
    partial: Path,
    context: Context,
    installation: Installation,
    timing: Timing,
    ask: Ask | None = None,
) -> Capture:
    """The capture with ``process_image``, and the folders of its rungs in `partial`.

    Args:
        capture: what was dumped; its files are hashed.
        partial: its folder, not sealed yet.
        context: whom to tell.
        installation: with ``coldsnap-fill``.
        timing: gets a span ``process-image``.
        ask: hydrates a canary and demands the recorded answers, where it may run.

    Only Cancelled comes out of it.
    """
    for path in (partial / "images").iterdir():
        path.chmod(0o400)  # as it will be: a rung may note size and mode of a file that it maps
    found: dict[str, Any] = {"format": 1, "rungs": {}, "sizes": []}
    with timing.span("process-image"):
        context.phase(f"making the process image of unit {capture.unit} fast to restore")
        proof = _Proof(capture, partial, context, installation, timing, ask)
        for rung in (EXT, MMAP):
            found["rungs"][rung] = proof.verdict(rung)
        found["sizes"] = proof.sizes()
    return replace(capture, process_image=found)


class _Proof:
    def __init__(
        self,
        capture: Capture,
        partial: Path,
        context: Context,
        installation: Installation,
        timing: Timing,
        ask: Ask | None,
    ) -> None:
        self._capture = capture
        self._partial = partial
        self._context = context
        self._installation = installation
        self._timing = timing
        self._ask = ask

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
        if not verdict["proven"]:
            self._context.log(f"{rung} images are not proven: {verdict['reason']}")
        return {**made, **verdict}

    def sizes(self) -> list[Any]:
        """What the dumped memory is, by process and kind; empty if that cannot be told."""
        try:
            module = importlib.import_module("coldsnap_runtime.process_image")
            ranges = (self._capture.cuda or {}).get("host_ranges") or {}
            device_state = {int(pid): spans for pid, spans in ranges.items()}
            return folded(module.sizes(self._partial / "images", device_state))
        except Exception as error:  # noqa: BLE001  (a table for people is no reason to fail)
            self._context.log(f"memory by kind is not known: {_words(error)}")
            return []

    def _rewritten(self, rung: str) -> dict[str, Any]:
        with self._timing.span("rewrite", rung=rung) as span:
            module = importlib.import_module("coldsnap_runtime.process_image")
            images, target = self._partial / "images", self._partial / rung
            made = module.rewrite(images, target, rung, self._installation.fill)
            span.note(bytes=made.bytes_moved)
        if not (target / INDEX).is_file():
            raise ColdSnapError("image.unsupported", "no pages can be taken out")
        if rung == MMAP and (reason := self._why_unguarded()):
            raise ColdSnapError("image.unsupported", reason)
        return {
            "bytes": made.bytes_moved,
            "bytes_kept": made.bytes_kept,
            "runs": made.runs,
            "areas": made.areas,
            "bytes_huge": made.bytes_huge,
        }

    def _why_unguarded(self) -> str:
        """A preload does nothing in a static program, or where its variable was taken away."""
        module = importlib.import_module("coldsnap_runtime.process_image")
        index = (self._partial / MMAP / INDEX).read_bytes()
        pids = module.read_fill_index(index).processes
        for pid, name in module.processes_without(self._partial / "images", pids, INSIDE_GUARD):
            return f"process {pid} ({name}) runs without the memory guard"
        return ""

    def _canary(self, rung: str) -> dict[str, Any]:
        if reason := self._why_short(1.0):
            return _unproven(reason)
        why_unasked = self._why_unasked()
        canary = Canary(
            self._capture, self._partial, self._context, self._installation, self._timing
        )
        try:
            pages = canary.run(rung, None if why_unasked else self._ask)
        except Exception as error:  # noqa: BLE001  (unproven is no failure)
            return _unproven(_words(error)) | _differences(error)
        if not pages.compared:
            return _unproven("CRIU did not say when the processes were back")
        kept = {"kept_pages": canary.kept.pages, "kept_differing": canary.kept.differing}
        return {**_proven(pages, why_unasked, canary.answer_fault), **kept}

    def _why_short(self, share: float) -> str:
        """Room for a second tree; it shares nothing with the one that serves."""
        found = [*(self._partial / "images").glob("pages-*.img")]
        if share > 1.0:
            found += (self._partial / "payload").glob("*.pack")
        needed = int(share * sum(path.stat().st_size for path in found)) + _ROOM
        needed += sum(s.bytes for s in self._capture.file_sets if s.name == "shm")
        free = available_memory()
        if free < needed:
            return f"memory is short for a canary: {needed >> 20} MiB needed, {free >> 20} free"
        return ""

    def _why_unasked(self) -> str:
        """Why a canary must not run; empty if it may."""
        launch = self._capture.launch
        if self._ask is None:
            return "no answers were recorded before the capture"
        if self._capture.cuda:
            return "the device has no room for a second engine; the first restore asks it"
        if launch.get("network") == "host":
            return "the unit has the host's network"
        if any(not mount.get("read_only", True) for mount in launch.get("mounts") or ()):
            return "a mount is writable, and the serving unit writes there"
        if any(file.is_output for file in self._capture.mapped_files):
            return "the unit writes to files of the host"
        return self._why_short(_ANSWER_SHARE)


def folded(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The largest areas by themselves, the others by process and kind: a restore reads it all."""
    ordered = sorted((dict(row) for row in rows), key=lambda row: -int(row["bytes"]))
    kept = ordered[:_AREAS]
    sums: dict[tuple[int, str, str], int] = {}
    for row in ordered[_AREAS:]:
        key = (row["pid"], row["process"], row["kind"])
        sums[key] = sums.get(key, 0) + int(row["bytes"])
    kept += [
        {"pid": pid, "process": process, "kind": kind, "name": "", "start": 0, "bytes": count}
        for (pid, process, kind), count in sums.items()
    ]
    return kept


def available_memory() -> int:
    """Bytes that can be used without swapping; 0 if the kernel does not say."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError):
        return 0
    return 0


def _proven(pages: RungPages, why_unasked: str, fault: ColdSnapError | None) -> dict[str, Any]:
    found = pages.compared
    is_other = fault is not None and fault.code == "accept.differs"
    reason = why_unasked or (f"answer: {_words(fault)}" if fault else "")
    return {
        "proven": not is_other,
        "level": "pages" if reason else "answer",
        "pages": int(found.get("pages") or 0),
        "differences": int(found.get("differences") or 0),
        "reason": reason,
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
