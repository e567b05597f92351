"""Cold starts against restores of the reference engine on this machine, by the product's command.

COLDSNAP_BENCH_MODEL gives the size of the model (default 200MB). Needs root and a CRIU.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLANS = ROOT / "plans" / "reference"
GOAL = 5.0
COLD, RESTORES = 2, 5


def coldsnap(folder: Path, *arguments: str) -> int:
    argv = [sys.executable, "-m", "coldsnap.cli", *arguments, "-i", str(folder / "inventory.yaml")]
    return subprocess.run(argv, cwd=folder, check=False).returncode


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> int:
    if os.geteuid() != 0:
        print("  skipped: snapshots need root")
        return 0
    # Not below /tmp: a unit has a /tmp of its own, and could not see its model there.
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="coldsnap-bench-", dir=place) as name:
        folder = Path(name)
        model = folder / "model"
        size = os.environ.get("COLDSNAP_BENCH_MODEL", "200MB")
        make = [sys.executable, "-m", "coldsnap_reference_engine", "make-model", str(model)]
        made = subprocess.run([*make, "--size", size, "--seed", "0"], check=True, text=True)
        assert made.returncode == 0
        local = {"connector": "@local", "vars": {"state_dir": str(folder / "state")}}
        inventory = {"coldsnap": "inventory/v1", "hosts": {"local": local}}
        (folder / "inventory.yaml").write_text(json.dumps(inventory))
        variables = ("--var", f"model={model}", "--var", f"port={free_port()}")
        try:
            return coldsnap(
                folder,
                *("bench", "cold-vs-restore", f"{PLANS}/capture.yaml", f"{PLANS}/restore.yaml"),
                *variables,
                *("--cold", str(COLD), "--restores", str(RESTORES), "--at-least", str(GOAL), "-y"),
            )
        finally:
            coldsnap(
                folder, "plan", "apply", f"{ROOT}/plans/evict.yaml", "--var", "unit=engine", "-y"
            )


if __name__ == "__main__":
    sys.exit(main())
