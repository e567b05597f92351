"""Two replicas from one image at the same time, and the memory that both need together."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap_runtime.host_pids import host_pids
from coldsnap_runtime.process_bench.subject import UNIT, stop_now, wait_for
from coldsnap_runtime.process_bench.turns import Turns, summary
from coldsnap_runtime.unit_processes import processes

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldsnap_runtime.context import Context
    from coldsnap_runtime.process_bench.subject import Subject
    from coldsnap_runtime.unit_record import UnitRecord

_SECONDS = 120.0


def together(
    turns: Turns, subject: Subject, context: Context, tries: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    """`tries` times two at once by ``mmap``; both must answer, and alike."""
    good, answered = 0, []
    pss = private = 0
    for number in range(tries):
        with ThreadPoolExecutor(2) as pool:
            made = list(
                pool.map(lambda unit: _one(turns, subject, unit), (f"{UNIT}-a", f"{UNIT}-b"))
            )
        records = [record for record, _, _ in made]
        try:
            values = [answer for _, answer, _ in made]
            expected = subject.expected if subject.expected is not None else values[0]
            good += int(all(value == expected for value in values))
            answered += [seconds for _, _, seconds in made]
            found = [memory_of(record) for record in records]
            pss = max(pss, sum(item[0] for item in found))
            private = max(private, sum(item[1] for item in found))
        finally:
            for record in records:
                stop_now(record, context)
        tell(f"two replicas at once: {good} of {number + 1}")
    return {
        "tries": tries,
        "good": good,
        "pss_bytes": pss,
        "private_bytes": private,
        "answered": summary(answered),
    }


def _one(turns: Turns, subject: Subject, unit: str) -> tuple[UnitRecord, Any, float]:
    start = time.monotonic()
    done = turns.restore("mmap", unit)
    answer = wait_for(done.record, subject.path, subject.port, _SECONDS)
    seconds = time.monotonic() - start
    if done.process_image["rung"] != "mmap":
        answer = done.process_image
    return done.record, answer, seconds


def memory_of(record: UnitRecord) -> tuple[int, int]:
    """(PSS, private) bytes of a unit's processes."""
    assert record.init is not None  # noqa: S101
    inside = [process.pid for process in processes(record.init.pid, record.root_pid)]
    pss = private = 0
    for pid in host_pids(record.init.pid, inside).values():
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(":")
            if name == "Pss":
                pss += int(rest.split()[0]) << 10
            elif name in ("Private_Clean", "Private_Dirty"):
                private += int(rest.split()[0]) << 10
    return pss, private
