"""What is done to the pages of a restored tree while it stands still, and what came of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.host_pids import host_pids
from coldsnap_runtime.page_filler import INDEX, Filler, check_sizes, rate, read_head
from coldsnap_runtime.restore_rungs import EXT, PLAIN

if TYPE_CHECKING:
    from pathlib import Path

    from coldsnap_runtime.timing import Timing
    from coldsnap_runtime.unit_record import ProcessRef


@dataclass
class RungPages:
    """`at_rest` fills (ext) and compares (a rung that was not proven, or a canary)."""

    rung: str
    image: Path
    program: Path
    timing: Timing
    deadline: float
    with_digests: bool
    compares: bool
    is_background: bool = False
    filled: dict[str, Any] = field(default_factory=dict)
    compared: dict[str, Any] = field(default_factory=dict)
    mapped_bytes: int = 0

    def at_rest(self, init: ProcessRef) -> None:
        """Raises ColdSnapError ``fill.*``: CRIU must not let the processes run then."""
        if self.rung == PLAIN:
            return
        end = time.monotonic() + self.deadline
        index = self.image / self.rung / INDEX
        head = read_head(index)
        check_sizes(head, self.image / "images")
        pids = host_pids(init.pid, head.processes)
        missing = sorted(set(head.processes) - set(pids))
        if missing:
            raise ColdSnapError(
                "fill.process-ended", f"process {missing[0]} of the unit ended during the restore"
            )
        filler = Filler(self.program, self.is_background)
        images = self.image / "images"
        if self.rung == EXT:
            with self.timing.span("fill") as span:
                self.filled = filler.fill(
                    index,
                    images,
                    pids,
                    end - time.monotonic(),
                    with_digests=self.with_digests,
                )
                span.note(bytes=int(self.filled.get("bytes") or 0))
                span.note(gib_per_second=round(rate(self.filled), 2))
                span.note(threads=int(self.filled.get("threads") or 0))
        else:
            with self.timing.span("map", bytes=head.bytes):
                self.mapped_bytes = head.bytes
        if self.compares:
            with self.timing.span("compare") as span:
                self.compared = filler.verify(index, images, pids, max(1.0, end - time.monotonic()))
                span.note(pages=int(self.compared.get("pages") or 0))

    def told(self) -> str:
        """One line for people."""
        words = [f"pages came by {self.rung}"]
        if count := int(self.filled.get("bytes") or 0) or self.mapped_bytes:
            words.append(f"{count / 2**30:.2f} GiB")
        if self.filled:
            words.append(f"{rate(self.filled):.1f} GiB/s, {self.filled.get('threads')} threads")
        if self.compared:
            words.append(f"{int(self.compared.get('pages') or 0):,} pages compared")
        return ", ".join(words)

    def report(self) -> dict[str, Any]:
        """For receipts."""
        report: dict[str, Any] = {"rung": self.rung}
        if self.filled:
            report |= {name: self.filled[name] for name in _TOLD if name in self.filled}
            report["gib_per_second"] = round(rate(self.filled), 2)
            report["digests"] = self.with_digests
        if self.mapped_bytes:
            report["bytes"] = self.mapped_bytes
        if self.compared:
            report["pages_checked"] = int(self.compared.get("pages") or 0)
        return report


_TOLD = ("bytes", "seconds", "threads", "pages", "processes")
