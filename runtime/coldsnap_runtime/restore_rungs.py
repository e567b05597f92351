"""The rungs of a restore: how the pages of a process image come back, fastest first.

``mmap`` maps the image copy-on-write, ``ext`` has many threads fill the pages while CRIU waits,
``plain`` is CRIU alone. The images as they were dumped serve all three: a rung is a small folder
of the capture (``ext/``, ``mmap/``) with the files that take the place of those of ``images/``.
"""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.page_filler import INDEX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldsnap_runtime.unit_capture import Capture

MMAP, EXT, PLAIN = "mmap", "ext", "plain"
RUNGS: Final = (MMAP, EXT, PLAIN)

_AT_ONCE = ("gpu.", "cuda.", "restore.", "container.", "store.", "unit.", "file.", "image.")
"""Errors that another rung cannot help: the host, the originals, the request."""
_OVERLAY = "image.overlay-damaged"
_THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@dataclass(frozen=True)
class Left:
    """A rung that was not gone, or not gone to its end."""

    rung: str
    code: str
    reason: str

    def to_json(self) -> dict[str, str]:
        return {"rung": self.rung, "code": self.code, "reason": self.reason}


@dataclass(frozen=True)
class Ladder:
    rungs: tuple[str, ...]
    """To be tried, in order; never empty."""
    left: tuple[Left, ...] = ()
    """Those that the mode asks for and that cannot be, with the reason."""
    unproven: tuple[str, ...] = ()
    """Rungs of `rungs` that no canary has proven: every page is compared at the restore."""


def ladder_of(mode: str, image: Path, capture: Capture) -> Ladder:
    """The rungs of a restore in `mode` (``auto``, or the first rung to try)."""
    first = EXT if mode == "auto" else mode
    verdicts = (capture.process_image or {}).get("rungs") or {}
    rungs, left, unproven = [], [], []
    for rung in RUNGS[RUNGS.index(first) :]:
        verdict = verdicts.get(rung) or {}
        refused = _refused(rung, image, capture, verdict)
        if refused is not None:
            left.append(refused)
            continue
        rungs.append(rung)
        if rung != PLAIN and not verdict.get("proven"):
            unproven.append(rung)
    return Ladder(tuple(rungs), tuple(left), tuple(unproven))


def _refused(rung: str, image: Path, capture: Capture, verdict: Mapping[str, Any]) -> Left | None:
    if rung == PLAIN:
        return None
    reason = str(verdict.get("reason") or "")
    if rung == MMAP and not capture.launch.get("memory_guard"):
        return Left(rung, "mmap.no-guard", "the unit was launched without memory_guard")
    if verdict.get("differences"):
        return Left(rung, f"{rung}.differs", reason or "its canary found pages that differ")
    if not (image / rung / INDEX).is_file():
        return Left(rung, f"{rung}.absent", reason or f"the artifact has no {rung}/{INDEX}")
    return None


def gives_huge_pages() -> bool:
    """Whether the kernel gives them to those who ask, and only to them."""
    try:
        return "[madvise]" in _THP.read_text(encoding="ascii")
    except OSError:
        return False  # a kernel without them refuses the advice, and CRIU then the restore


def assemble(image: Path, rung: str, folder: Path, *, huge_pages: bool = True) -> Path:
    """The folder that CRIU opens: links to `images/`, those of the rung in their place.

    Args:
        image: folder of the capture.
        rung: one of `RUNGS`.
        folder: to make; on the file system of `image`.
        huge_pages: for ``ext``, as its rewrite asks for them, where the kernel listens.

    Raises:
        ColdSnapError: ``image.overlay-damaged``, ``file.disk-full``.
    """
    if rung == PLAIN:
        return image / "images"
    overlay = {path.name for path in (image / rung).iterdir() if path.name != INDEX}
    if rung == EXT and not (huge_pages and gives_huge_pages()):
        overlay = {name for name in overlay if not name.startswith("mm-")}
    folder.mkdir(mode=0o700)
    try:
        for source in (image / "images").iterdir():
            if source.name not in overlay:
                _link(source, folder / source.name)
        for name in overlay:
            _link(image / rung / name, folder / name)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ColdSnapError(
                "file.disk-full",
                f"there is no room for the {rung} images: {error}",
                remedy="free space below the state folder",
            ) from error
        raise ColdSnapError(_OVERLAY, f"the {rung} images cannot be laid out: {error}") from error
    return folder


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            raise
        shutil.copyfile(source, target, follow_symlinks=False)


def goes_down(error: ColdSnapError, rung: str) -> bool:
    """Whether the next rung may succeed where this one failed."""
    if rung == PLAIN:
        return False
    if error.code == _OVERLAY or (rung == MMAP and error.code == "unit.start-failed"):
        return True
    return not error.code.startswith(_AT_ONCE)
