"""Runs apply, resume or rollback in a process of its own, so that it can be killed.

    python kill_child.py FOLDER apply|resume|rollback [SECONDS]

`KILL_AT=<phase>:<step>` makes it kill itself there with SIGKILL.
"""

from __future__ import annotations

import sys
from pathlib import Path

from engine_world import World, node

from coldsnap.engine.applying import apply
from coldsnap.engine.resuming import resume
from coldsnap.engine.rolling_back import rollback
from coldsnap.engine.runs import Runs


def steps(seconds: float) -> list[object]:
    return [
        node("a", seconds=seconds),
        node("b", "t.pause", ["a"], value="{{ steps.a.outputs.value }}+b", seconds=seconds),
        node("c", needs=["b"], value="{{ steps.b.outputs.value }}+c", seconds=seconds),
    ]


def main() -> int:
    folder, verb = Path(sys.argv[1]), sys.argv[2]
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
    world = World(folder, ("a-1",))
    setup = world.setup(*steps(seconds))
    if verb == "apply":
        return apply(setup).exit_code
    run = Runs(folder).find("latest")
    return (resume if verb == "resume" else rollback)(setup, run).exit_code


if __name__ == "__main__":
    sys.exit(main())
