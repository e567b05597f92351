"""One canary: a capture restored in namespaces of its own, compared, perhaps asked, and ended.

At level ``pages`` the tree is ended before it ran an instruction. At level ``answer`` it runs, is
hydrated, and must give the recorded answers. It has a state folder of its own beside the capture,
so that the unit's generations never know of it.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.context import Context
from coldsnap_runtime.kept_pages import Kept, compare_kept
from coldsnap_runtime.restore_attempt import Attempt, Subject
from coldsnap_runtime.rung_pages import RungPages
from coldsnap_runtime.timing import Timing
from coldsnap_runtime.unit_record import UnitStore
from coldsnap_runtime.unit_requests import LaunchSpec, RestoreRequest
from coldsnap_runtime.unit_stop import end_generation

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldsnap_runtime.installation import Installation
    from coldsnap_runtime.unit_capture import Capture
    from coldsnap_runtime.unit_record import ProcessRef, UnitRecord

    Ask = Callable[[UnitStore, UnitRecord, Context], None]
    """Hydrates a canary that runs and demands the recorded answers of it."""

CANARY = ".canary"
"""Ending of the folder that a canary has for its state; beside the capture."""
_SECONDS = 300.0
_RUN = "canary"


class _ProvenError(Exception):
    """All pages are right; raised so that CRIU ends the tree."""


class Canary:
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
        self._outer = context
        self._installation = installation
        self._timing = timing
        self._folder = partial.with_name(partial.name.removesuffix(".partial") + CANARY)
        self.kept = Kept()
        self.answer_fault: ColdSnapError | None = None
        """Why the pages are right and the answer is not, or did not come."""

    def run(self, rung: str, ask: Ask | None) -> RungPages:
        """Restore by `rung` and compare; asked by `ask`, if it may run. All ends before it returns.

        Raises:
            ColdSnapError: what a restore raises, ``fill.memory-differs`` above all.
        """
        end(self._folder)
        pages = self._pages(rung)

        def at_rest(init: ProcessRef) -> None:
            pages.at_rest(init)
            with self._timing.span("compare-kept"):
                self.kept = compare_kept(self._partial, rung, init)
            if ask is None:
                raise _ProvenError

        try:
            self._folder.mkdir(mode=0o700)
            with self._timing.span("canary", rung=rung):
                context = Context(os.fspath(self._folder), self._outer.pack, _unheard)
                record = self._attempt(rung, at_rest, context)
                if ask is not None:
                    self._ask(ask, record, context)
        except _ProvenError:
            pass
        finally:
            end(self._folder)
        return pages

    def _pages(self, rung: str) -> RungPages:
        return RungPages(
            rung=rung,
            image=self._partial,
            program=self._installation.fill,
            timing=self._timing,
            deadline=_SECONDS,
            with_digests=True,
            compares=True,
            is_background=True,
        )

    def _attempt(self, rung: str, at_rest: Any, context: Context) -> Any:
        capture, payload = self._capture, self._partial / "payload"
        spec = replace(LaunchSpec.from_json(capture.launch), network="private")
        payloads = tuple((path.name, path) for path in sorted(payload.glob("*")))
        request = RestoreRequest(capture.unit, _RUN, self._partial, "", payloads=payloads)
        outputs = tuple(file for file in capture.mapped_files if file.is_output)
        # Without the CUDA state: the device has no room for a second one.
        subject = Subject(request, capture, spec, outputs)
        attempt = Attempt(subject, context, self._installation, Timing(), rung, at_rest)
        return attempt.run(_SECONDS)

    def _ask(self, ask: Ask, record: UnitRecord, context: Context) -> None:
        try:
            with self._timing.span("canary-answer"):
                ask(UnitStore(context.state_dir), record, context)
        except ColdSnapError as error:
            self.answer_fault = error


def end(folder: Path) -> None:
    """End the generations of a canary's state folder, and remove it."""
    if not folder.is_dir():
        return
    store = UnitStore(folder)
    for unit in store.units():
        for record in store.generations(unit):
            if record.is_live:
                end_generation(record)
    shutil.rmtree(folder, ignore_errors=True)


def end_canaries(context: Context, unit: str) -> None:
    """End and remove what a verb that was killed has left; the caller holds the unit's lock."""
    for folder in Path(context.path("captures", unit)).glob(f"*{CANARY}"):
        end(folder)


def _unheard(event: dict[str, Any]) -> None:
    """Nobody is told of the phases of a canary."""
