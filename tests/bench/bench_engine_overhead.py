"""What the engine adds to a step on @local, beside bare pyinfra in the same run.

A step here is one fact and one operation. Bare pyinfra does the same with its own API: a State
(it cannot be used for a second round), the fact, the operation. The engine does it with observe,
diff, a journal that is fsynced at every transition, and the child process in between. Ours is the
difference between a long and a short run, so that starting up is not counted.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

SHORT, LONG, ROUNDS = 5, 45, 3
GOAL_MS = 60.0
HERE = Path(__file__).parent

BARE = """
from gevent import monkey; monkey.patch_all()
import sys, time
from pyinfra.api import Config, Inventory, State
from pyinfra.api.connect import connect_all
from pyinfra.api.operation import add_op
from pyinfra.api.operations import run_ops
from pyinfra.context import ctx_host, ctx_state
from pyinfra.facts.server import Hostname
from pyinfra.operations import server
times = []
for number in range(int(sys.argv[1])):
    started = time.perf_counter()
    state = State(Inventory((["@local"], {})), Config())
    connect_all(state)
    with ctx_state.use(state):
        for host in state.inventory:
            with ctx_host.use(host):
                host.get_fact(Hostname)
        done = add_op(state, server.shell, name="touch", commands=["true"])
        run_ops(state)
    assert all(meta.did_succeed() for meta in done.values())
    times.append(time.perf_counter() - started)
print(sum(times[1:]) / (len(times) - 1) * 1000)
"""


def engine_seconds(steps: int, folder: Path) -> float:
    """Seconds of an apply with so many steps in a chain."""
    sys.path.insert(0, str(HERE))
    from touch_pack import PACK  # noqa: PLC0415

    from coldsnap.engine import Setup, apply  # noqa: PLC0415
    from coldsnap.fleet import open_fleet  # noqa: PLC0415
    from coldsnap.plan.loading import load_text  # noqa: PLC0415
    from coldsnap.plan.registry import Registry  # noqa: PLC0415

    lines = ["coldsnap: plan/v1", "name: overhead", "steps:"]
    for number in range(steps):
        needs = f"[s{number - 1}]" if number else "[]"
        lines.append(f"  - {{id: s{number}, type: bench.touch, needs: {needs}}}")
    text = "\n".join(lines) + "\n"
    registry = Registry.from_packs(PACK)
    with open_fleet("@local") as fleet:
        plan = load_text(text, registry)
        setup = Setup(plan=plan, text=text, fleet=fleet, registry=registry, project=folder)
        started = time.perf_counter()
        result = apply(setup)
        seconds = time.perf_counter() - started
    assert result.exit_code == 0, result.errors
    assert result.changed == steps
    return seconds


def bare_ms() -> float:
    done = subprocess.run(
        [sys.executable, "-c", BARE, str(LONG)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"bare pyinfra failed: {done.stderr[-800:]}")
    return float(done.stdout.split()[-1])


def main() -> int:
    bare: list[float] = []
    ours: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        for _ in range(ROUNDS):  # in turns, so that a busy machine is busy for both
            bare.append(bare_ms())
            short = engine_seconds(SHORT, Path(name))
            ours.append((engine_seconds(LONG, Path(name)) - short) / (LONG - SHORT) * 1000)
    print(
        f"one fact and one operation on @local, median of {ROUNDS}: goal <= {GOAL_MS:g} ms in all"
    )
    print(f"  bare pyinfra         {median(bare):6.1f} ms a step")
    print(f"  the engine           {median(ours):6.1f} ms a step")
    print(f"  added                {median(ours) - median(bare):+6.1f} ms a step")
    return int(median(ours) > GOAL_MS)


if __name__ == "__main__":
    sys.exit(main())
