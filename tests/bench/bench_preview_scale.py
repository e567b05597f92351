"""A preview of 50 steps on 200 hosts that are not there: 10,000 pairs, < 10 s, < 500 MB.

Measured from outside, in a process of its own: reading the plan and the inventory, the preview,
and (the second row) the whole command line with its output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEPS, HOSTS = 50, 200
GOAL_SECONDS, GOAL_MB = 10.0, 500.0
HERE = Path(__file__).parent
OWN = '{wanted: h, value: "{{ host.vars.rack }} {{ steps.BEFORE.outputs.value }}"}'
"""Different on every host, and known only once the step before was looked at."""

CHILD = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from touch_pack import PACK
from coldsnap.engine import Setup, preview_plan
from coldsnap.fleet import open_fleet
from coldsnap.plan.loading import load_plan
from coldsnap.plan.registry import Registry
registry = Registry.from_packs(PACK)
with open_fleet(sys.argv[2]) as fleet:
    plan = load_plan(sys.argv[1], registry)
    setup = Setup(plan=plan, text="", fleet=fleet, registry=registry, project=Path("."))
    found = preview_plan(setup)
assert len(found.instances) == 10000 and not found.errors, found.errors[:1]
print(sum(1 for i in found.instances if i.change.is_pending), "of", len(found.instances), "pending")
"""


def plan_text(kind: str, parameters: str, first: str = "{}") -> str:
    """A chain: each step needs the one before; `parameters` may name it as BEFORE."""
    lines = ["coldsnap: plan/v1", "name: scale", "steps:"]
    for number in range(STEPS):
        needs = f"[s{number - 1}]" if number else "[]"
        text = parameters.replace("steps.BEFORE", f"steps.s{number - 1}")
        if not number:
            text = first
        lines.append(f"  - {{id: s{number}, type: {kind}, needs: {needs}, with: {text}}}")
    return "\n".join(lines) + "\n"


def inventory_text() -> str:
    profile = {
        "identity": {"machine_id": "0", "boot_id": "0", "hostname": "h"},
        "features": [{"id": "driver.criu", "status": "passed", "reason": "", "remedy": ""}],
    }
    answers = [
        {"fact": "pyinfra.facts.server:Hostname", "value": "h"},
        {"fact": "coldsnap_core.facts:HostProfile", "value": profile},
    ]
    host = {"connector": "@fake", "answers": answers}
    hosts = {f"h{n:03}": {**host, "vars": {"rack": f"r{n % 7}"}} for n in range(HOSTS)}
    return json.dumps({"coldsnap": "inventory/v1", "hosts": hosts})


def measure(argv: list[str], folder: Path) -> tuple[float, float, str]:
    """Seconds, peak resident MB and the last line of output of a command."""
    output = folder / "output"
    started = time.monotonic()
    with output.open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, cwd=folder)
        _pid, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - started
    lines = output.read_text("utf-8", "replace").strip().splitlines() or [""]
    if process.returncode:
        print("\n".join(lines[-20:]))
        raise SystemExit(f"{argv[:3]} ended with {process.returncode}")
    return seconds, usage.ru_maxrss / 1000, lines[-1]


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "inventory.yaml").write_text(inventory_text())
        own, core = folder / "plan.yaml", folder / "core.yaml"
        own.write_text(plan_text("bench.touch", OWN, "{wanted: h}"))
        core.write_text(plan_text("core.probe", "{}"))
        inventory = str(folder / "inventory.yaml")
        rows = [
            ("engine", [sys.executable, "-c", CHILD, str(own), inventory, str(HERE)]),
            (
                "coldsnap plan diff",
                [
                    sys.executable,
                    "-m",
                    "coldsnap.cli",
                    "plan",
                    "diff",
                    str(core),
                    "-i",
                    inventory,
                    "--color",
                    "never",
                ],
            ),
        ]
        print(f"{STEPS} steps x {HOSTS} hosts: goal < {GOAL_SECONDS:g} s, < {GOAL_MB:g} MB")
        missed = False
        for label, argv in rows:
            seconds, megabytes, last = measure(argv, folder)
            missed |= seconds >= GOAL_SECONDS or megabytes >= GOAL_MB
            print(f"  {label:20} {seconds:6.2f} s  {megabytes:6.0f} MB   {last[:70]}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
