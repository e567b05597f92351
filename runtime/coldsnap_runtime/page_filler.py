"""``coldsnap-fill``: pages of an image, moved by many threads into processes that stand still.

The program is run by the controller while CRIU waits for leave to go on (``post-restore``), and
at a capture to seal the index and to compare. It never writes before the maps of all targets are
what the index says; one JSON object is its answer.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

INDEX = "fill.index"
MAGIC = b"CSFILL01"
_HEAD = struct.Struct("<8s8IQ")
_FILE = struct.Struct("<Q64s")
_PROCESS = struct.Struct("<II")
_MOST_PROCESSES = 65536
_MOST_FILES = 4096
_MOST_OUTPUT = 1 << 20
_SHARE = 0.9
"""Of the time there is, after which the program shall give up by itself."""
_LOW_PRIORITY = 10
_MOST_THREADS = 16
_MIB = 1 << 20

_CODES = {
    1: ("fill.failed", "could not move pages"),
    2: ("fill.index-invalid", "does not accept the index"),
    3: ("fill.digest-differs", "read pages that differ from their digest"),
    4: ("fill.target-differs", "found other mappings in the process than the index names"),
    5: ("fill.deadline", "did not finish in time"),
    6: ("fill.process-ended", "lost a process that it was filling"),
    7: ("fill.memory-differs", "found memory that differs from the image"),
}


@dataclass(frozen=True)
class IndexHead:
    """What the controller must know of an index; the program checks the rest."""

    processes: tuple[int, ...]
    """Numbers inside the unit."""
    runs: int
    bytes: int
    files: tuple[tuple[str, int], ...] = ()
    """(name, bytes) of the page files that are read."""


def read_head(index: Path) -> IndexHead:
    """Raises ColdSnapError ``fill.index-invalid``."""
    try:
        with open(index, "rb") as file:
            magic, files, count, _areas, runs, *_, total = _HEAD.unpack(file.read(_HEAD.size))
            is_ours = magic == MAGIC and count <= _MOST_PROCESSES and files <= _MOST_FILES
            names = file.read(_FILE.size * files) if is_ours else b""
            data = file.read(_PROCESS.size * count) if is_ours else b""
        processes = tuple(pid for pid, _ in _PROCESS.iter_unpack(data))
        table = tuple(_named(*item) for item in _FILE.iter_unpack(names))
    except (OSError, struct.error) as error:
        raise _unreadable(index, str(error)) from None
    if not is_ours or len(processes) != count:
        raise _unreadable(index, "it is not an index of version 1, or cut")
    return IndexHead(processes, runs, total, table)


def _named(size: int, name: bytes) -> tuple[str, int]:
    return name.rstrip(b"\0").decode("ascii", "replace"), size


def check_sizes(head: IndexHead, images: Path) -> None:
    """The page files that all rungs read: one that is cut or gone helps none of them.

    Raises:
        ColdSnapError: ``image.damaged``.
    """
    for name, size in head.files:
        try:
            found = (images / name).stat().st_size
        except OSError:
            found = -1
        if "/" in name or found != size:
            told = "is missing" if found < 0 else f"has {found:,} bytes, captured were {size:,}"
            raise ColdSnapError(
                "image.damaged",
                f"images/{name} {told}",
                remedy="verify the artifact: coldsnap artifact verify; then restore another one",
            )


def _unreadable(index: Path, reason: str) -> ColdSnapError:
    return ColdSnapError(
        "fill.index-invalid",
        f"{index.name} of the image cannot be read: {reason}",
        remedy="verify the artifact, then restore another one",
    )


def thread_count() -> int:
    """Processors that this process may use, at most what was seen to pay."""
    return max(1, min(_MOST_THREADS, len(os.sched_getaffinity(0))))


@dataclass(frozen=True)
class Filler:
    program: Path
    is_background: bool = False
    """Run with low priority on half of the processors: something serves beside."""

    def fill(
        self,
        index: Path,
        images: Path,
        pids: Mapping[int, int],
        deadline: float,
        *,
        with_digests: bool,
    ) -> dict[str, Any]:
        """Write every page. `pids`: number inside -> number on the host; `deadline`: seconds.

        Raises:
            ColdSnapError: ``fill.*``; the targets must be ended then.
        """
        words = [*self._words("fill", index, images), *_pairs(pids)]
        words += ["--deadline", f"{max(0.1, deadline * _SHARE):.3f}"]
        words += [] if with_digests else ["--no-digests"]
        return self._run(words, deadline)

    def verify(
        self, index: Path, images: Path, pids: Mapping[int, int], deadline: float
    ) -> dict[str, Any]:
        """Compare every run with the memory of its process, and what is beside it with zero.

        Raises:
            ColdSnapError: ``fill.memory-differs`` and others.
        """
        return self._run([*self._words("verify", index, images), *_pairs(pids)], deadline)

    def _words(self, verb: str, index: Path, images: Path) -> list[str]:
        count = thread_count()
        threads = max(1, count // 2) if self.is_background else count
        return [
            *(os.fspath(self.program), verb, "--index", os.fspath(index)),
            *("--images", os.fspath(images), "--threads", str(threads)),
        ]

    def _run(self, words: Sequence[str], deadline: float) -> dict[str, Any]:
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise ColdSnapError(
                "fill.failed",
                f"the page filler cannot be run: {error}",
                remedy="build and stage the runtime pack again: coldsnap runtime build",
            ) from None
        try:
            if self.is_background:
                _lower(process.pid)
            out, err = process.communicate(timeout=max(0.1, deadline))
        except subprocess.TimeoutExpired:
            raise _failed(5, {}, f"it was killed after {deadline:.1f} s") from None
        finally:
            if process.poll() is None:  # out of time, or this verb was cancelled
                process.kill()
                process.communicate()
        answer = _answer(out)
        if process.returncode == 0 and "error" not in answer:
            return answer
        raise _failed(process.returncode, answer, err.decode("utf-8", "replace").strip()[-400:])


def rate(filled: Mapping[str, Any]) -> float:
    """GiB/s of a fill."""
    seconds = float(filled.get("seconds") or 0.0)
    return float(filled.get("bytes") or 0) / 2**30 / seconds if seconds > 0 else 0.0


def _pairs(pids: Mapping[int, int]) -> list[str]:
    return [word for inside, host in pids.items() for word in ("--pid", f"{inside}={host}")]


def _lower(pid: int) -> None:
    try:
        os.setpriority(os.PRIO_PROCESS, pid, _LOW_PRIORITY)
    except OSError:
        return  # it has ended


def _answer(out: bytes) -> dict[str, Any]:
    lines = out[:_MOST_OUTPUT].splitlines()
    try:
        value = json.loads(lines[-1]) if lines else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _failed(status: int, answer: Mapping[str, Any], text: str) -> ColdSnapError:
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = str(-status)
        code, message = "fill.killed", f"was ended by {name}"
    else:
        code, message = _CODES.get(status, ("fill.failed", f"ended with status {status}"))
    told = str(answer.get("error") or "") or text
    return ColdSnapError(
        code,
        f"the page filler {message}" + (f": {told}" if told else ""),
        details=tuple(
            f"{name}: {answer[name]}"
            for name in ("pid", "address", "differences", "file", "chunk")
            if name in answer
        ),
        remedy="restore again with image_mode: plain; if it stays, verify the artifact",
    )
