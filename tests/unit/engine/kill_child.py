"""Runs apply, resume or rollback in a process of its own, so that it can be killed.

`kill_at`, ``<phase>:<step>``, makes it kill itself there with SIGKILL.
"""

from __future__ import annotations

import os
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


def run(folder: Path, verb: str, kill_at: str, seconds: float) -> None:
    """Do it and end the process with the exit code of the run."""
    os.environ["KILL_AT"] = kill_at
    world = World(folder, ("a-1",))
    setup = world.setup(*steps(seconds))
    if verb == "apply":
        sys.exit(apply(setup).exit_code)
    found = Runs(folder).find("latest")
    sys.exit((resume if verb == "resume" else rollback)(setup, found).exit_code)
