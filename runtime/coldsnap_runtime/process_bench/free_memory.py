"""Free memory that is really there before a restore is measured.

A virtual machine may have given what is free back to its host (free page reporting, two seconds
after it became free), which then brings it page by page while a restore runs: such a figure is the
hypervisor's, and it falls on whichever kind comes first.
"""

from __future__ import annotations

import subprocess
import sys

_HALVES = 2
_SECONDS = 120.0
_TOUCH = """
import mmap, sys
memory = mmap.mmap(-1, int(sys.argv[1]), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE)
memory.madvise(23)  # MADV_POPULATE_WRITE
"""


def touch(size: int) -> None:
    """Have `size` bytes of huge pages, and give them back: only whole ones go to a host.

    Once and at once: what became free first is given away first, two seconds later. Kernels before
    5.14 and those without huge pages do not take part: the machine is measured as it is then.
    """
    words = [sys.executable, "-S", "-c", _TOUCH, str(max(1, size // _HALVES))]
    halves = [subprocess.Popen(words, stderr=subprocess.DEVNULL) for _ in range(_HALVES)]
    for half in halves:
        try:
            half.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            half.kill()
            half.wait()
