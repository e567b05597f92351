"""``coldsnap bench process-restore``: the runtime pack in a scratch folder, and what runs there."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coldsnap_runtime.context import Context
    from coldsnap_runtime.installation import Installation
    from coldsnap_runtime.process_bench.subject import Subject

_PLACE = "/var/tmp"  # noqa: S108  (a folder of our own is made in it)
_TREES = 3.2
"""A serving tree, its canary and its images in the page cache, in sizes of the tree."""


@dataclass(frozen=True)
class Options:
    size: int
    processes: int
    kinds: tuple[str, ...]
    rounds: int
    loop: int
    replicas: int
    folder: Path | None
    store: Path | None
    manifest: str
    ask: str


def run(options: Options, tell: Callable[[str], None]) -> dict[str, Any]:
    """Make or lay out what is restored, restore it in turns, clean up.

    Raises:
        ColdSnapError: ``bench.needs-root``, ``bench.*``, ``runtime.*`` and those of a restore.
    """
    if os.geteuid() != 0:
        raise ColdSnapError(
            "bench.needs-root",
            "process images are restored as root",
            remedy="run it with sudo",
        )
    from coldsnap_runtime.process_bench.turns import Turns, machine

    before = machine()
    with _scratch(options.folder) as scratch:
        context, installation = _installed(scratch)
        with _subject(options, context, installation, tell) as subject:
            turns = Turns(subject, context, installation)
            kinds, missing = _possible(options.kinds, subject)
            found: dict[str, Any] = {
                "format": 1,
                "kind": "coldsnap-bench-process-restore",
                "machine": before,
                "bytes": subject.bytes,
                "artifact": options.manifest,
                "verdicts": subject.verdicts,
                "capture_spans": subject.capture_spans,
                "missing": missing,
                "series": [s.to_json() for s in turns.measure(kinds, options.rounds, tell)],
            }
            if options.loop:
                found["loop"] = turns.loop(_rungs(kinds), options.loop, tell)
            if options.replicas:
                from coldsnap_runtime.process_bench.replicas import together

                found["replicas"] = together(turns, subject, context, options.replicas, tell)
    return found


def fitting_size(wanted: int) -> int:
    """`wanted` bytes, or what of it this machine's memory holds thrice."""
    from coldsnap_runtime.image_proof import available_memory

    room = int(available_memory() / _TREES)
    return min(wanted, max(64 << 20, room))


def _rungs(kinds: tuple[str, ...]) -> tuple[str, ...]:
    rungs = tuple(kind for kind in kinds if kind in ("ext", "mmap"))
    return rungs or kinds


def _possible(kinds: tuple[str, ...], subject: Subject) -> tuple[tuple[str, ...], dict[str, str]]:
    """The kinds that the capture has, and why not the others."""
    from coldsnap_runtime.process_bench.turns import rung_of

    missing = {}
    for kind in kinds:
        rung = rung_of(kind)
        if rung == "plain" or (subject.image / rung).is_dir():
            continue
        verdict = subject.verdicts.get(rung) or {}
        missing[kind] = str(verdict.get("reason") or "the capture does not have it")
    return tuple(kind for kind in kinds if kind not in missing), missing


@contextmanager
def _scratch(folder: Path | None) -> Iterator[Path]:
    """Not below /tmp: a unit has a /tmp of its own."""
    place = Path(tempfile.mkdtemp(prefix="coldsnap-bench-", dir=folder or _PLACE))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _installed(scratch: Path) -> tuple[Context, Installation]:
    from coldsnap.store.archive import unpack
    from coldsnap.store.runtime import build
    from coldsnap_runtime.context import Context
    from coldsnap_runtime.installation import Installation

    pack = scratch / "pack"
    unpack(build().archive, pack)
    state = scratch / "state"
    state.mkdir()
    return Context(os.fspath(state), os.fspath(pack), _quiet), Installation.find(pack)


@contextmanager
def _subject(
    options: Options, context: Context, installation: Installation, tell: Callable[[str], None]
) -> Iterator[Subject]:
    from coldsnap_runtime import image_folders
    from coldsnap_runtime.process_bench import subject as subjects

    if options.store is not None:
        subject, token = subjects.of_artifact(context, options.store, options.manifest, options.ask)
        try:
            yield subject
        finally:
            image_folders.drop(context, subjects.UNIT, token)
        return
    tell(f"making a tree of {options.size / 2**30:.1f} GiB, and capturing it")
    script = Path(context.pack) / "coldsnap_runtime" / "process_bench" / "tree.py"
    share = subjects.CHILD_SHARE if options.processes > 1 else 0.0
    yield subjects.synthetic(context, installation, options.size, script, share)


def _quiet(event: dict[str, Any]) -> None:
    """What the runtime says on the way is not for this table."""
