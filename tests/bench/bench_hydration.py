"""File to host memory out of the page cache, on one core, on two and on all, beside the ceilings.

Goals: unverified at 90 % of a plain parallel read; verified at 90 % of what the same cores do when
they read and then digest; twice the cores, 1.7 times the rate. A busy machine misses them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SIZE = os.environ.get("COLDSNAP_BENCH_SIZE", "256MiB")
ROUNDS = "7"


def measured(cores: set[int]) -> dict[str, dict[str, Any]]:
    """Series by name, of a bench that may use these cores."""
    command = [
        sys.executable, "-m", "coldsnap_runtime.hydrate.bench", "--size", SIZE, "--rounds", ROUNDS,
        "--no-cold", "--no-write",
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'runtime'}"},
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )  # fmt: skip
    if done.returncode:
        sys.exit(done.stderr)
    return {series["name"]: series for series in json.loads(done.stdout)["series"]}


def main() -> int:
    usable = sorted(os.sched_getaffinity(0))
    counts = sorted({1, min(2, len(usable)), len(usable)})
    found = {count: measured(set(usable[:count])) for count in counts}
    missed = 0
    print(f"{'GB/s, ' + SIZE:<34}" + "".join(f"{count} cores".rjust(16) for count in counts))
    for name in ("plain parallel read", "warm, unverified"):
        print(f"{name:<34}" + "".join(_cell(found[n][name]) for n in counts))
    for kind in ("sha256", "blake3"):
        digest, warm = f"digest {kind}", f"warm, {kind}"
        for name in (digest, warm):
            print(f"{name:<34}" + "".join(_cell(found[n][name]) for n in counts))
        shares = []
        for n in counts:
            read, hashed = found[n]["plain parallel read"]["rate"], found[n][digest]["rate"]
            shares.append(found[n][warm]["rate"] / (1 / (1 / read + 1 / hashed)))
        missed += any(share < 0.9 for share in shares)
        print(f"{'  of reading, then digesting':<34}" + "".join(f"{s:>16.0%}" for s in shares))
    missed += any(found[n]["warm, unverified"]["ratio"] < 0.9 for n in counts)
    if len(usable) > 1:
        gain = found[2]["warm, blake3"]["rate"] / found[1]["warm, blake3"]["rate"]
        print(f"two cores beside one, blake3: {gain:.2f} times")
        missed += gain < 1.7
    return 1 if missed else 0


def _cell(series: dict[str, Any]) -> str:
    share = f" ({series['ratio']:.0%})" if series["ratio"] else ""
    return f"{series['rate'] / 1e9:.2f}{share}".rjust(16)


if __name__ == "__main__":
    sys.exit(main())
