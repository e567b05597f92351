"""The runtime's own main, with a few verbs that only tests need."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import types
from pathlib import Path

from coldsnap_runtime.context import Context
from coldsnap_runtime.main import main
from coldsnap_runtime.verbs import VERBS, Verb


def work(request: dict, context: Context) -> dict:
    """Count runs in a file, say steps, sleep; undo on cancel."""
    with Path(request["marks"]).open("a") as file:
        file.write(f"begin {os.getpid()}\n")
    if request.get("child"):
        child = subprocess.Popen(["sleep", "600"])
        context.log(f"child {child.pid}")
    try:
        for step in range(request.get("steps", 3)):
            context.phase(f"step {step}")
            time.sleep(request.get("sleep", 0.05))
    except BaseException:
        time.sleep(request.get("undo", 0.0))
        with Path(request["marks"]).open("a") as file:
            file.write("undone\n")
        raise
    if request.get("fail_times", 0) >= Path(request["marks"]).read_text().count("begin"):
        raise ValueError("a defect")
    return {"pid": os.getpid(), "session": os.getsid(0), "big": "x" * request.get("big", 0)}


def flood(request: dict, context: Context) -> dict:
    for _ in range(request["events"]):
        context.log("y" * 1000)
    return {"done": True}


if __name__ == "__main__":
    module = types.ModuleType("coldsnap_runtime.for_tests")
    module.work, module.flood = work, flood
    sys.modules["coldsnap_runtime.for_tests"] = module
    VERBS["test.work"] = Verb("for_tests:work", "")
    VERBS["test.flood"] = Verb("for_tests:flood", "")
    sys.exit(main(sys.argv[1:]))
