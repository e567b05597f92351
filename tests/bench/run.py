"""``make bench``: every ``bench_*.py`` beside this file, one after the other.

Each prints a small table and ends with 1 when a goal is missed. Names on the command line choose:
``python tests/bench/run.py preview_scale``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    wanted = sys.argv[1:]
    benches = [
        path
        for path in sorted(HERE.glob("bench_*.py"))
        if not wanted or any(name in path.stem for name in wanted)
    ]
    missed = []
    for path in benches:
        print(f"== {path.stem.removeprefix('bench_')}", flush=True)
        if subprocess.run([sys.executable, str(path)], check=False).returncode:
            missed.append(path.stem)
        print(flush=True)
    if missed:
        print(f"missed: {', '.join(missed)}")
    return 1 if missed or not benches else 0


if __name__ == "__main__":
    sys.exit(main())
