"""Restores in turns: every kind once a round, so that no kind has the better hour."""

from __future__ import annotations

import contextlib
import gc
import os
import statistics
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.process_bench.free_memory import touch
from coldsnap_runtime.process_bench.leaks import count
from coldsnap_runtime.process_bench.subject import UNIT, Subject, ask, stop_now, wait_for
from coldsnap_runtime.timing import Timing
from coldsnap_runtime.unit_requests import RestoreRequest
from coldsnap_runtime.unit_restore import restore_by_ladder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coldsnap_runtime.context import Context
    from coldsnap_runtime.installation import Installation
    from coldsnap_runtime.unit_restore import Restored

_THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_ANSWER_SECONDS = 120.0
_RESTORE_SECONDS = 300.0
_TOUCHED = 1.1
"""Of the image's size."""

KINDS = ("plain", "thp", "ext", "ext-small", "mmap")
"""``thp`` is plain with huge pages given always; ``ext-small`` does not ask for them."""


def rung_of(kind: str) -> str:
    """The rung by which a kind of `KINDS` is restored."""
    return {"thp": "plain", "ext-small": "ext"}.get(kind, kind)


@dataclass
class Series:
    kind: str
    restored: list[float] = field(default_factory=list)
    """Seconds until the processes are there."""
    answered: list[float] = field(default_factory=list)
    """Seconds until the first answer, from the same start."""
    rates: list[float] = field(default_factory=list)
    """GiB/s of the filler."""
    image: dict[str, Any] = field(default_factory=dict)
    """What the last restore told of its pages."""

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "n": len(self.restored),
            "restored": summary(self.restored),
            "answered": summary(self.answered),
            "fill_gib_per_second": summary(self.rates),
            "process_image": self.image,
        }


class Turns:
    def __init__(self, subject: Subject, context: Context, installation: Installation) -> None:
        self._subject = subject
        self._context = context
        self._installation = installation

    def measure(
        self, kinds: tuple[str, ...], rounds: int, tell: Callable[[str], None]
    ) -> list[Series]:
        """`rounds` of every kind, after one of each that is not counted.

        Raises:
            ColdSnapError: ``bench.rung-left`` if a rung did not hold, ``bench.differs``.
        """
        series = {kind: Series(kind) for kind in kinds}
        for number in range(rounds + 1):
            for kind in kinds:
                restored, answered, report = self.once(kind)
                if number == 0:
                    continue
                one = series[kind]
                one.restored.append(restored)
                one.answered.append(answered)
                one.image = report
                if "gib_per_second" in report:
                    one.rates.append(float(report["gib_per_second"]))
                tell(f"{kind}: {restored:.2f} s, first answer after {answered:.2f} s")
        return list(series.values())

    def once(self, kind: str, *, deep: bool = False) -> tuple[float, float, dict[str, Any]]:
        """One restore: seconds to the processes, to the first answer, and how the pages came."""
        gc.collect()
        if not deep:
            touch(int(self._subject.bytes * _TOUCHED))
        with huge_pages(always=kind == "thp"):
            start = time.monotonic()
            done = self.restore(kind, UNIT, compare=deep)
            restored = time.monotonic() - start
            try:
                answer = wait_for(
                    done.record, self._subject.path, self._subject.port, _ANSWER_SECONDS
                )
                answered = time.monotonic() - start
                self._expect(kind, done, answer)
                if deep and self._subject.digest is not None:
                    self._same(kind, ask(done.record, "/sum", self._subject.port))
            finally:
                stop_now(done.record, self._context)
        return restored, answered, done.process_image

    def restore(self, kind: str, unit: str, *, compare: bool = False) -> Restored:
        mode = rung_of(kind)
        request = RestoreRequest(
            unit, "bench", self._subject.image, self._subject.artifact, image_mode=mode
        )
        request = replace(
            request,
            deadline=_RESTORE_SECONDS,
            huge_pages=kind != "ext-small",
            compare_pages=compare,
        )
        return restore_by_ladder(request, self._context, self._installation, Timing())

    def _expect(self, kind: str, done: Restored, answer: Any) -> None:
        left = done.process_image.get("left") or []
        if left:
            raise ColdSnapError(
                "bench.rung-left",
                f"{kind} was not how the pages came: {left[0]['reason']}",
                details=tuple(f"{item['rung']}: {item['reason']}" for item in left),
            )
        if self._subject.expected is not None and answer != self._subject.expected:
            raise ColdSnapError(
                "bench.differs", f"{kind}: the restored tree answers {answer}, not as captured"
            )

    def _same(self, kind: str, digest: Any) -> None:
        if digest != self._subject.digest:
            raise ColdSnapError("bench.differs", f"{kind}: the digest of the memory is another one")

    def loop(
        self, kinds: tuple[str, ...], count_of: int, tell: Callable[[str], None]
    ) -> dict[str, Any]:
        """Restore `count_of` times, compare every page each time, and count what stays behind."""
        place = Path(self._context.state_dir)
        before, pages, done = count(place), 0, 0
        for number in range(count_of):
            kind = kinds[number % len(kinds)]
            _, _, report = self.once(kind, deep=True)
            pages += int(report.get("pages_checked") or 0)
            done += 1
            if done % 10 == 0:
                tell(f"{done} restores, {pages} pages compared")
        after = count(place)
        leaks = {name: after[name] - before[name] for name in before}
        return {"restores": done, "pages_compared": pages, "differences": 0, "leaks": leaks}


@contextlib.contextmanager
def huge_pages(*, always: bool) -> Iterator[None]:
    """The machine's switch, put back afterwards."""
    if not always:
        yield
        return
    before = _THP.read_text(encoding="ascii").partition("[")[2].partition("]")[0]
    _THP.write_text("always", encoding="ascii")
    try:
        yield
    finally:
        _THP.write_text(before, encoding="ascii")


def summary(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {
        "median": round(statistics.median(values), 4),
        "min": round(min(values), 4),
        "max": round(max(values), 4),
    }


def machine() -> dict[str, Any]:
    """What the figures were had on."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "kernel": os.uname().release,
        "load": [round(value, 2) for value in os.getloadavg()],
        "thp": _THP.read_text(encoding="ascii").strip() if _THP.exists() else "",
    }
